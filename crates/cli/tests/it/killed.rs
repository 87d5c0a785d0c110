//! Services that are killed while everybody uses them: what was answered holds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mailbox::backends::remote::{RemoteBackend, RemoteConfig};
use mailbox::{Backend, Name, Outgoing, ReceiveOptions, Settlement, Verdict};
use mailbox_redis_servers::shared;
use parking_lot::Mutex;

use super::server::{Home, Server};

const PRODUCERS: u64 = 4;
const CONSUMERS: usize = 3;
/// How long a delivery is held that died with its connection.
const HELD: Duration = Duration::from_secs(1);

/// Where services are at the moment, and what became of messages.
#[derive(Default)]
struct Book {
    urls: Mutex<Vec<String>>,
    capability: String,
    stop: AtomicBool,
    next: AtomicU64,
    /// Sends that were answered, and those that were acknowledged in the end.
    sent: Mutex<BTreeSet<String>>,
    done: Mutex<BTreeSet<String>>,
    /// Whose acknowledgement was not answered: nobody knows whether they are gone.
    in_doubt: Mutex<BTreeSet<String>>,
    /// Deliveries after an acknowledgement was answered.
    returned: AtomicU64,
}

impl Book {
    async fn service(&self, turn: usize) -> Option<Arc<RemoteBackend>> {
        let url = {
            let urls = self.urls.lock();
            urls.get(turn % urls.len().max(1)).cloned()?
        };
        let config = RemoteConfig::default()
            .with_capability(&*self.capability)
            .with_patience(Duration::ZERO)
            .with_timeout(Duration::from_secs(5));
        RemoteBackend::open_with(&url, config).await.ok()
    }

    /// Sends that were answered, and whose messages nobody has seen the end of.
    fn missing(&self) -> Vec<String> {
        let (done, in_doubt) = (self.done.lock(), self.in_doubt.lock());
        let is_missing = |key: &&String| !done.contains(*key) && !in_doubt.contains(*key);
        self.sent.lock().iter().filter(is_missing).cloned().collect()
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn jobs() -> Name {
    Name::parse("jobs").unwrap()
}

/// Sends until told to stop; a send in doubt is made again, with the same key, at whoever is there.
async fn produce(book: Arc<Book>, number: usize) {
    let mut turn = number;
    while !book.is_over() {
        let key = format!("m{}", book.next.fetch_add(1, Ordering::Relaxed));
        loop {
            let mut message = Outgoing::new(Bytes::from(key.clone()));
            message.idempotency_key = Some(key.clone());
            turn += 1;
            let Some(service) = book.service(turn).await else { continue };
            if let Ok(sent) = service.send(&jobs(), vec![message]).await
                && sent.into_iter().all(|sent| sent.is_ok())
            {
                book.sent.lock().insert(key);
                break;
            }
        }
    }
}

/// Acknowledges at whoever is there: a handle is good at every service, and after a restart.
async fn acknowledge(book: &Book, turn: &mut usize, settlement: Settlement) -> bool {
    for _ in 0..50 {
        *turn += 1;
        let Some(service) = book.service(*turn).await else { continue };
        if let Ok(settled) = service.settle(&jobs(), vec![settlement.clone()]).await {
            // Refused: an earlier attempt may have done it.
            return settled[0].is_ok();
        }
    }
    false
}

/// Receives and acknowledges until everything that was sent is done.
async fn consume(book: Arc<Book>, number: usize) {
    let options = ReceiveOptions::new()
        .with_max_messages(5)
        .with_visibility_timeout(HELD)
        .with_wait(Duration::from_millis(200));
    let mut turn = number;
    loop {
        turn += 1;
        let Some(service) = book.service(turn).await else { continue };
        let Ok(received) = service.receive(&jobs(), &options).await else { continue };
        for delivery in received {
            let key = String::from_utf8(delivery.letter.payload.to_vec()).unwrap();
            if book.done.lock().contains(&key) {
                book.returned.fetch_add(1, Ordering::Relaxed);
            }
            let settlement = Settlement {
                receipt_handle: delivery.receipt_handle.clone(),
                verdict: Verdict::Acknowledge,
            };
            match acknowledge(&book, &mut turn, settlement).await {
                true => book.done.lock().insert(key),
                false => book.in_doubt.lock().insert(key),
            };
        }
        if book.is_over() && book.missing().is_empty() {
            return;
        }
    }
}

/// Lets everybody work while `kill` does its worst; then audits.
fn audited<T>(book: Book, kill: impl FnOnce(&Book) -> T) {
    let book = Arc::new(book);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|number| runtime.spawn(produce(Arc::clone(&book), number as usize)))
        .collect();
    let consumers: Vec<_> =
        (0..CONSUMERS).map(|number| runtime.spawn(consume(Arc::clone(&book), number))).collect();
    // What it gives has to be there until the audit is over.
    let _services = kill(&book);
    book.stop.store(true, Ordering::Relaxed);
    let ended = runtime.block_on(async {
        let all = async {
            for task in producers.into_iter().chain(consumers) {
                task.await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all).await
    });
    let sent = book.sent.lock().len();
    let missing = book.missing();
    assert!(ended.is_ok() && missing.is_empty(), "lost, of {sent}: {missing:?}");
    assert!(sent > 100, "there was something to lose: {sent}");
    // Each kill leaves a few: those that the consumers had at that moment.
    let in_doubt = book.in_doubt.lock().difference(&book.done.lock()).count();
    assert!(in_doubt * 4 < sent, "most were acknowledged: {in_doubt} of {sent} are in doubt");
    assert_eq!(
        book.returned.load(Ordering::Relaxed),
        0,
        "what was acknowledged does not come back"
    );
}

/// Lets so many more sends be answered.
fn progress(book: &Book, more: usize) {
    let goal = book.sent.lock().len() + more;
    let deadline = Instant::now() + Duration::from_secs(30);
    while book.sent.lock().len() < goal {
        assert!(Instant::now() < deadline, "no sends are answered any more");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn operator(home: &Home) -> String {
    std::fs::read_to_string(home.data().join("operator.cap")).unwrap().trim().to_owned()
}

#[test]
fn a_service_on_a_journal_that_is_killed_again_and_again_loses_nothing() {
    let home = Home::new();
    let mut service = home.serve(&[]);
    let urls = Mutex::new(vec![service.url.clone()]);
    let book = Book { urls, capability: operator(&home), ..Book::default() };
    audited(book, |book| {
        for _ in 0..10 {
            progress(book, 60);
            service.kill();
            service = home.serve(&[]);
            *book.urls.lock() = vec![service.url.clone()];
        }
        progress(book, 60);
        service
    });
}

#[test]
fn one_of_two_services_on_a_cluster_is_killed_and_nothing_is_lost() {
    let seeds: Vec<String> =
        shared::cluster().nodes().iter().take(3).map(|node| node.address().to_string()).collect();
    let prefix = format!("killed{}:", std::process::id());
    let store = format!("redis+cluster://{}?prefix={prefix}", seeds.join(","));
    let home = Home::new();
    let start = || home.serve(&["--store", &store]);
    let mut both = [start(), start()];
    let urls = |both: &[Server; 2]| both.iter().map(|it| it.url.clone()).collect::<Vec<_>>();
    let book =
        Book { urls: Mutex::new(urls(&both)), capability: operator(&home), ..Book::default() };
    audited(book, |book| {
        for turn in 0..6 {
            progress(book, 60);
            let victim = std::mem::replace(&mut both[turn % 2], start());
            victim.kill();
            *book.urls.lock() = urls(&both);
        }
        progress(book, 60);
        both
    });
}

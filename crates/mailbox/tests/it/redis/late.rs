//! The first try of a send that was given up comes after the second has had its effect: it does
//! nothing any more, whatever has become of the message.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, DeadReason, Outgoing, Policy, Retention, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{Place, jobs, key, millis, seconds, send, until, url};

/// The most ids that `gone` has.
const GONE: u64 = 50_000;

/// Somebody between a backend and its server who keeps a script back, and closes the connection: as
/// a network does that delivers it much later.
struct Delay {
    address: SocketAddr,
    plan: Arc<Plan>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct Plan {
    is_next: AtomicBool,
    kept: Mutex<Vec<u8>>,
}

impl Delay {
    async fn before(place: &Place) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, server) = (listener.local_addr().unwrap(), place.node.address());
        let plan = Arc::new(Plan::default());
        let own = Arc::clone(&plan);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, plan) = (server.clone(), Arc::clone(&own));
                // A connection that breaks is what this is for.
                tokio::spawn(async move { drop(pass_on(client, &server, &plan).await) });
            }
        });
        Self { address, plan, listening }
    }

    /// Sends a message twice: the first try is kept, the second takes effect.
    async fn send(&self, message: Outgoing) -> (String, Vec<u8>) {
        self.send_with(RedisConfig::default(), message).await
    }

    async fn send_with(&self, config: RedisConfig, message: Outgoing) -> (String, Vec<u8>) {
        let place = url(&self.address.to_string());
        let backend = RedisBackend::open_with(&place, config).await.unwrap();
        self.plan.is_next.store(true, Ordering::Relaxed);
        let id = send(&*backend, message).await.unwrap();
        let kept = std::mem::take(&mut *self.plan.kept.lock().unwrap());
        assert!(!kept.is_empty(), "nothing was kept");
        (id, kept)
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn pass_on(mut client: TcpStream, server: &str, plan: &Plan) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let request = &request[..read?];
                let is_script = request.windows(7).any(|word| word == b"EVALSHA");
                if is_script && plan.is_next.swap(false, Ordering::Relaxed) {
                    *plan.kept.lock().unwrap() = request.to_vec();
                    return Ok(());
                }
                server.write_all(request).await?;
                if request.is_empty() {
                    return Ok(());
                }
            }
            read = server.read(&mut reply) => {
                let reply = &reply[..read?];
                client.write_all(reply).await?;
                if reply.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

/// What was kept arrives; what the server says to it.
async fn arrive(place: &Place, kept: &[u8]) -> String {
    let mut server = TcpStream::connect(place.node.address()).await.unwrap();
    server.write_all(kept).await.unwrap();
    let mut reply = vec![0; 1 << 12];
    let count = server.read(&mut reply).await.unwrap();
    String::from_utf8_lossy(&reply[..count]).into_owned()
}

/// What a server says to a send of one message that is done.
const DONE: &str = "*1\r\n$0\r\n\r\n";

#[tokio::test]
async fn a_first_try_that_comes_after_the_acknowledgement_does_not_bring_the_message_back() {
    let place = Place::new().await;
    let delay = Delay::before(&place).await;
    // The server knows the scripts.
    place.send("0").await;
    let zero = place.receive(seconds(30)).await.unwrap();
    place.settle(&zero, Verdict::Acknowledge).await.unwrap();
    let mut grouped = Outgoing::new("1".into());
    grouped.group = Some("g".into());
    for message in [Outgoing::new("1".into()), grouped] {
        let (id, kept) = delay.send(message).await;
        let taken = place.receive(seconds(30)).await.unwrap();
        assert_eq!(taken.id.to_string(), id);
        assert_eq!(arrive(&place, &kept).await, DONE, "while it is held");
        assert!(place.receive(seconds(30)).await.is_none());
        place.settle(&taken, Verdict::Acknowledge).await.unwrap();
        let before = place.backend.stats(&jobs()).await.unwrap().totals;
        assert_eq!(arrive(&place, &kept).await, DONE, "it is done, and nothing else is to do");
        assert!(place.receive(seconds(30)).await.is_none(), "it comes back");
        assert_eq!(place.parts(), ["gone", "state"]);
        assert_eq!(place.backend.stats(&jobs()).await.unwrap().totals, before);
        // What was kept is a whole send: but for `gone` it would be one.
        let _: u64 = place.run(&["DEL", &key("gone")]);
        assert_eq!(arrive(&place, &kept).await, DONE);
        let again = place.receive(seconds(30)).await.unwrap();
        assert_eq!(again.id.to_string(), id);
        place.settle(&again, Verdict::Acknowledge).await.unwrap();
    }
}

#[tokio::test]
async fn a_first_try_that_comes_after_the_message_has_died_does_not_bring_it_back() {
    let place = Place::new().await;
    let delay = Delay::before(&place).await;
    place.send("0").await;
    let zero = place.receive(seconds(30)).await.unwrap();
    place.settle(&zero, Verdict::Acknowledge).await.unwrap();
    let (id, kept) = delay.send(Outgoing::new("1".into())).await;
    let taken = place.receive(seconds(30)).await.unwrap();
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error: None };
    place.settle(&taken, reject).await.unwrap();
    assert_eq!(arrive(&place, &kept).await, DONE);
    assert!(place.receive(seconds(30)).await.is_none(), "it is dead");
    let [(dead, _)]: [(String, f64); 1] = place.scores("dead").try_into().unwrap();
    assert_eq!(dead, id);
    assert!(!place.parts().contains(&"data".to_owned()));
}

#[tokio::test]
async fn a_first_try_that_finds_its_message_too_old_does_not_send_it_again() {
    let place = Place::new().await;
    let delay = Delay::before(&place).await;
    place.send("0").await;
    let zero = place.receive(seconds(30)).await.unwrap();
    place.settle(&zero, Verdict::Acknowledge).await.unwrap();
    // The mailbox has no rules of its own: those who send bring them.
    let retention = Retention { ready_age: Some(millis(100)), ..Retention::default() };
    let policy = Policy { retention, ..Policy::default() };
    let config = RedisConfig::default().with_policy(policy);
    let (id, kept) = delay.send_with(config, Outgoing::new("1".into())).await;
    assert_eq!(place.list("pending"), [&*id]);
    let came_in: f64 = place.meta(&id)["attrs"].split(';').next().unwrap().parse().unwrap();
    until("it is too old", || async { place.now() > came_in / 1e6 + 0.1 }).await;
    assert!(!place.parts().contains(&"dead".to_owned()), "nobody has noticed yet");
    // The first one finds the message dead that it has just buried itself, the second one before.
    for _ in 0..2 {
        assert_eq!(arrive(&place, &kept).await, DONE);
        let [(dead, _)]: [(String, f64); 1] = place.scores("dead").try_into().unwrap();
        assert_eq!(dead, id);
        assert_eq!(place.parts(), ["dead", "gone", "graves", "state"], "it is in line too");
    }
    let totals = place.backend.stats(&jobs()).await.unwrap().totals;
    assert_eq!((totals.sent, totals.dead_lettered), (2, 1));
}

#[tokio::test]
async fn what_was_acknowledged_is_remembered_for_a_minute_and_so_many_at_most() {
    let place = Place::new().await;
    let fill = "
        local time = redis.call('TIME')
        local now = time[1] * 1000000 + time[2]
        for at = 1, ARGV[2] do
          redis.call('ZADD', KEYS[1], string.format('%.0f', now - ARGV[1] + at), ARGV[1] .. at)
        end
        return redis.call('ZCARD', KEYS[1])";
    let fill = |age_micros: &str, count: &str| -> u64 {
        place.run(&["EVAL", fill, "1", &key("gone"), age_micros, count])
    };
    // Older than a minute, and younger.
    fill("61000000", "100");
    fill("50000000", "100");
    let acknowledge = async || {
        let id = place.send("1").await;
        let taken = place.receive(seconds(30)).await.unwrap();
        place.settle(&taken, Verdict::Acknowledge).await.unwrap();
        id
    };
    let mut ids = vec![acknowledge().await];
    let gone = place.scores("gone");
    assert_eq!(gone.len(), 101);
    assert!(gone.iter().all(|(id, _)| !id.starts_with("61")), "older than a minute");
    assert_eq!(gone.last().map(|(id, _)| id), ids.last());
    assert!((119..=120).contains(&place.ttl("gone")), "{}", place.ttl("gone"));
    // More than there may be.
    assert_eq!(fill("40000000", "60000"), 60_101);
    ids.push(acknowledge().await);
    let count: u64 = place.run(&["ZCARD", &key("gone")]);
    assert!((GONE - 1..=GONE).contains(&count), "{count}");
    let newest: Vec<String> = place.run(&["ZRANGE", &key("gone"), "-2", "-1"]);
    assert_eq!(newest, ids, "the oldest go, not the last");
    assert!((119..=120).contains(&place.ttl("gone")));
}

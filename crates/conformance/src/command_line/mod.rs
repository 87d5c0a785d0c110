//! Every call a run of the `mailbox` command: shows that the command line promises what the library
//! does, and says in words that programs can read how it went.
//!
//! What the command line has no command for goes another way: rules are set and read through the
//! library, and so are deliveries undone, or rejected for a reason that a program has. A batch is
//! as many runs as it has messages, or verdicts.

mod answers;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::{
    Abilities, Backend, DeadReason, Delivery, Error, ErrorKind, Figure, MessageId, Name, Outgoing,
    Peek, Policy, ReceiptHandle, ReceiveOptions, Record, Result, Selection, Sent, Settlement,
    Stats, Verdict,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use answers::Answer;

/// How long a receive has been running that waits by now.
const BEGUN: Duration = Duration::from_millis(250);

/// A backend that is a program.
pub(crate) struct CommandLine {
    program: PathBuf,
    /// The folder of inboxes.
    path: PathBuf,
    /// For rules: there is no command for them.
    library: Arc<DirectoryBackend>,
    abilities: Abilities,
    closed: watch::Sender<bool>,
    /// When receives that are running now were started.
    waiting: Mutex<BTreeMap<(Name, u64), Instant>>,
    /// Mailboxes that have the rules of the library, not those of the command line.
    made: Mutex<BTreeSet<Name>>,
}

impl CommandLine {
    pub(crate) async fn open(program: &Path, path: &Path) -> Result<Self> {
        let config = DirectoryConfig::default().with_policy(Policy::default());
        Ok(Self {
            program: program.to_owned(),
            path: path.to_owned(),
            library: DirectoryBackend::open_with(path, config).await?,
            abilities: abilities(),
            closed: watch::Sender::new(false),
            waiting: Mutex::default(),
            made: Mutex::default(),
        })
    }

    fn check_open(&self, mailbox: Option<&Name>) -> Result<()> {
        if !*self.closed.borrow() {
            return Ok(());
        }
        let closed = Error::new(ErrorKind::Closed, "closed");
        Err(match mailbox {
            Some(mailbox) => closed.with_mailbox(mailbox),
            None => closed,
        })
    }

    /// The command takes what is too much for one call in parts; a backend refuses it.
    fn check_size(&self, mailbox: &Name, field: &'static str, size: usize) -> Result<()> {
        let checked = self.abilities.check_batch(field, size);
        checked.map_err(|error| error.with_mailbox(mailbox))
    }

    /// Runs the command for a mailbox.
    async fn run(&self, mailbox: &Name, command: &[&str], options: &[String]) -> Result<Answer> {
        self.run_with(mailbox, command, options, Bytes::new()).await
    }

    async fn run_with(
        &self,
        mailbox: &Name,
        command: &[&str],
        options: &[String],
        input: Bytes,
    ) -> Result<Answer> {
        self.check_open(Some(mailbox))?;
        let address = self.address(mailbox);
        let arguments = command.iter().copied().chain([address.as_str(), "--json"]);
        let arguments = arguments.chain(options.iter().map(String::as_str));
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => Err(Error::closed(mailbox)),
            ran = run::run(&self.program, arguments, input) => ran,
        }
    }

    /// A mailbox that the command line makes gives a message three attempts; cases know only the
    /// library's own rules.
    async fn prepare(&self, mailbox: &Name) -> Result<()> {
        self.check_open(Some(mailbox))?;
        if !self.made.lock().insert(mailbox.clone()) {
            return Ok(());
        }
        let policy = self.library.policy(mailbox).await?;
        self.library.configure(mailbox, policy).await
    }

    async fn send_one(&self, mailbox: &Name, message: Outgoing) -> Result<Sent> {
        let mut options = vec![format!("--delay={}", time(message.delay))];
        let pair = |(key, value): (&String, &String)| format!("--attr={key}={value}");
        options.extend(message.attributes.iter().map(pair));
        options.extend(message.reply_to.map(|address| format!("--reply-to={address}")));
        options.extend(message.idempotency_key.map(|key| format!("--key={key}")));
        options.extend(message.group.map(|group| format!("--group={group}")));
        let ran = self.run_with(mailbox, &["send"], &options, message.payload).await?;
        answers::sent(&ran)
    }

    async fn settle_some(
        &self,
        mailbox: &Name,
        verdict: &Verdict,
        handles: &[String],
    ) -> Result<Vec<Result<()>>> {
        let mut options = Vec::new();
        let command = match verdict {
            Verdict::Acknowledge => "ack",
            Verdict::Nack { delay, error } => {
                options.push(format!("--delay={}", time(*delay)));
                options.extend(error.as_deref().map(|error| format!("--error={error}")));
                "nack"
            }
            Verdict::Extend { timeout } => {
                options.push(format!("--visibility={}", time(*timeout)));
                "extend"
            }
            Verdict::Reject { reason: DeadReason::Rejected, error } => {
                options.extend(error.as_deref().map(|error| format!("--reason={error}")));
                "reject"
            }
            Verdict::Reject { .. } | Verdict::Return => {
                let settlement = |handle: &String| Settlement {
                    receipt_handle: ReceiptHandle::from_text(handle),
                    verdict: verdict.clone(),
                };
                let batch = handles.iter().map(settlement).collect();
                return self.library.settle(mailbox, batch).await;
            }
        };
        options.push("--".to_owned());
        options.extend(handles.iter().cloned());
        answers::settled(&self.run(mailbox, &[command], &options).await?, handles)
    }

    /// Runs a command that names dead letters, and counts.
    async fn dead(
        &self,
        mailbox: &Name,
        command: &str,
        which: &Selection,
        yes: bool,
    ) -> Result<Answer> {
        let mut options: Vec<String> = yes.then(|| "--yes".to_owned()).into_iter().collect();
        match which {
            Selection::All => options.push("--all".to_owned()),
            Selection::Oldest(most) => options.push(format!("--oldest={most}")),
            Selection::Reason(reason) => options.push(format!("--reason={}", reason.as_str())),
            Selection::These(ids) => {
                options.push("--".to_owned());
                options.extend(ids.iter().map(MessageId::to_string));
            }
        }
        self.run(mailbox, &["dead", command], &options).await
    }
}

/// What mailboxes can do through the command line.
pub(crate) fn abilities() -> Abilities {
    let mut abilities = DirectoryConfig::default().abilities();
    // What a run takes longer than the call it makes.
    abilities.resolution = Duration::from_millis(50);
    abilities
}

/// A time, as the command line takes it.
fn time(time: Duration) -> String {
    format!("{}.{:09}s", time.as_secs(), time.subsec_nanos())
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandLine").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for CommandLine {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        self.library.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.prepare(mailbox).await?;
        self.check_size(mailbox, "batch", batch.len())?;
        let mut sent = Vec::new();
        for message in batch {
            sent.push(self.send_one(mailbox, message).await);
        }
        Ok(sent)
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        self.prepare(mailbox).await?;
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let key = (mailbox.clone(), number);
        let _running = (!options.wait.is_zero()).then(|| Running::new(&self.waiting, key));
        let wanted = [
            format!("--max={}", options.max_messages),
            format!("--wait={}", time(options.wait)),
            format!("--visibility={}", time(options.visibility_timeout)),
        ];
        answers::deliveries(&self.run(mailbox, &["receive"], &wanted).await?)
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.check_open(Some(mailbox))?;
        self.check_size(mailbox, "batch", batch.len())?;
        let mut settled = Vec::new();
        for alike in batch.chunk_by(|one, next| one.verdict == next.verdict) {
            let handles: Vec<String> =
                alike.iter().map(|one| one.receipt_handle.to_string()).collect();
            match self.settle_some(mailbox, &alike[0].verdict, &handles).await {
                Ok(results) => settled.extend(results),
                Err(error) => settled.extend(alike.iter().map(|_| Err(error.clone()))),
            }
        }
        Ok(settled)
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        match request {
            Peek::Live { limit } => {
                self.check_size(mailbox, "limit", *limit as usize)?;
                let options = [format!("--max={limit}")];
                answers::records(&self.run(mailbox, &["peek"], &options).await?)
            }
            Peek::Dead { after, limit } => {
                self.check_size(mailbox, "limit", *limit as usize)?;
                // The command has no cursor: it shows all, and what was seen is left out here.
                let listed = self.run(mailbox, &["dead", "list"], &["--max=1000".into()]).await?;
                let records = answers::dead_letters(&listed)?.into_iter();
                let is_new = |it: &Record| it.death.is_some_and(|death| Some(death.order) > *after);
                Ok(records.filter(is_new).take(*limit as usize).collect())
            }
            Peek::These(ids) => {
                self.check_size(mailbox, "ids", ids.len())?;
                let mut found = Vec::new();
                for id in ids {
                    let shown = self.run(mailbox, &["peek"], &[format!("--id={id}")]).await?;
                    match answers::records(&shown) {
                        Ok(records) => found.extend(records),
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(found)
            }
        }
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        let mut stats = answers::stats(&self.run(mailbox, &["stats"], &[]).await?)?;
        let waiting = self.waiting.lock();
        let here = waiting.iter().filter(|((name, _), _)| name == mailbox);
        stats.waiters = here.filter(|(_, started)| started.elapsed() >= BEGUN).count() as u64;
        Ok(stats)
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        answers::count(&self.run(mailbox, &["purge"], &["--yes".to_owned()]).await?, "purged")
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.check_open(Some(mailbox))?;
        if *which == Selection::These(Vec::new()) {
            return Ok(0);
        }
        answers::count(&self.dead(mailbox, "redrive", which, false).await?, "redriven")
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.check_open(Some(mailbox))?;
        if *which == Selection::These(Vec::new()) {
            return Ok(0);
        }
        answers::count(&self.dead(mailbox, "delete", which, true).await?, "deleted")
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.check_open(Some(mailbox))?;
        self.library.configure(mailbox, policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.check_open(Some(mailbox))?;
        self.library.policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.check_open(None)?;
        let place = format!("dir:{}", self.path.display());
        let arguments = ["list", place.as_str(), "--json"].into_iter();
        let names = answers::names(&run::run(&self.program, arguments, Bytes::new()).await?)?;
        let behind = names.into_iter().filter(|name| after.is_none_or(|after| name > after));
        Ok(behind.take(limit).collect())
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        let ran = self.run(mailbox, &["remove"], &["--yes".to_owned()]).await?;
        self.made.lock().remove(mailbox);
        answers::removed(&ran)
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.closed.send_replace(true);
        Ok(())
    }
}

/// A receive that waits is known as long as this is there.
struct Running<'a> {
    all: &'a Mutex<BTreeMap<(Name, u64), Instant>>,
    key: (Name, u64),
}

impl<'a> Running<'a> {
    fn new(all: &'a Mutex<BTreeMap<(Name, u64), Instant>>, key: (Name, u64)) -> Self {
        all.lock().insert(key.clone(), Instant::now());
        Self { all, key }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

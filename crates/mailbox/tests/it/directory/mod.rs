//! Inboxes in folders, from outside: through the library, and with plain files and shells beside
//! it. Here is what all of them need: a folder to work in, a shell, and a second life of this test
//! with other rights or limits.

mod bounds;
mod clocks;
mod events;
mod half_written;
mod odd_files;
mod odd_names;
mod settling;
mod shell;
mod trust;
mod upkeep;

use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::{
    Backend, Death, Delivery, Name, Outgoing, Peek, ReceiveOptions, Record, Settlement, Stats,
    Verdict,
};

/// How long anything may take that is not a matter of time.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long something may take that happens at once, on a machine that is busy.
const SOON: Duration = Duration::from_secs(2);
/// Between two looks of a test at something that will happen.
const PAUSE: Duration = Duration::from_millis(5);

/// A folder of inboxes with one inbox, `orders`, and whoever uses it through the library.
struct Place {
    root: tempfile::TempDir,
    backend: Arc<DirectoryBackend>,
}

impl Place {
    async fn new() -> Self {
        Self::with(DirectoryConfig::default()).await
    }

    async fn with(config: DirectoryConfig) -> Self {
        // Whatever the mask is: who can write to it is checked too.
        let private = fs::Permissions::from_mode(0o700);
        let root = tempfile::Builder::new().permissions(private).tempdir().unwrap();
        let backend = DirectoryBackend::open_with(root.path().join("inboxes"), config).await;
        let place = Self { root, backend: backend.unwrap() };
        // Makes the folders.
        assert!(place.receive_now().await.is_none());
        place
    }

    /// The same folder, as another process would open it.
    async fn another(&self, config: DirectoryConfig) -> Arc<DirectoryBackend> {
        DirectoryBackend::open_with(self.root.path().join("inboxes"), config).await.unwrap()
    }

    /// Something in the inbox.
    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join("inboxes/orders").join(path)
    }

    /// Changes a setting in `inbox.json`, as an editor does: a new file in place of the old.
    fn set(&self, key: &str, value: impl Into<serde_json::Value>) {
        let text = fs::read(self.at("inbox.json")).unwrap();
        let mut settings: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(settings.get(key).is_some(), "no setting {key}");
        settings[key] = value.into();
        fs::write(self.at("inbox.json.new"), settings.to_string()).unwrap();
        fs::rename(self.at("inbox.json.new"), self.at("inbox.json")).unwrap();
    }

    /// Runs a script in the inbox.
    fn bash(&self, script: &str) -> String {
        bash(&self.at(""), script)
    }

    /// Puts a file into a folder of the inbox as a shell does: written elsewhere, then moved.
    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let written = self.at("incoming/.tmp/being-written");
        fs::write(&written, content).unwrap();
        fs::rename(&written, self.at(path)).unwrap();
    }

    async fn send(&self, payload: &str) -> mailbox::MessageId {
        send(&*self.backend, payload).await
    }

    async fn receive(&self) -> Delivery {
        self.receive_within(PATIENCE).await.expect("there is a message")
    }

    async fn receive_now(&self) -> Option<Delivery> {
        self.receive_within(Duration::ZERO).await
    }

    async fn receive_within(&self, wait: Duration) -> Option<Delivery> {
        receive(&*self.backend, wait).await.unwrap()
    }

    async fn settle(&self, delivery: &Delivery, verdict: Verdict) -> mailbox::Result<()> {
        settle(&*self.backend, delivery, verdict).await
    }

    async fn acknowledge(&self, delivery: &Delivery) {
        self.settle(delivery, Verdict::Acknowledge).await.unwrap();
    }

    async fn stats(&self) -> Stats {
        self.backend.stats(&orders()).await.unwrap()
    }

    async fn live(&self) -> Vec<Record> {
        self.backend.peek(&orders(), &Peek::Live { limit: 100 }).await.unwrap()
    }

    async fn dead(&self) -> Vec<(Record, Death)> {
        let request = Peek::Dead { after: None, limit: 100 };
        let records = self.backend.peek(&orders(), &request).await.unwrap();
        let with_death = |record: Record| {
            let death = record.death.expect("a dead letter has died");
            (record, death)
        };
        records.into_iter().map(with_death).collect()
    }
}

fn orders() -> Name {
    "orders".parse().unwrap()
}

async fn send(backend: &dyn Backend, payload: &str) -> mailbox::MessageId {
    let batch = vec![Outgoing::new(payload.to_owned().into())];
    backend.send(&orders(), batch).await.unwrap().remove(0).unwrap().id
}

async fn receive(backend: &dyn Backend, wait: Duration) -> mailbox::Result<Option<Delivery>> {
    let options = ReceiveOptions::new().with_wait(wait);
    Ok(backend.receive(&orders(), &options).await?.pop())
}

async fn settle(
    backend: &dyn Backend,
    delivery: &Delivery,
    verdict: Verdict,
) -> mailbox::Result<()> {
    let receipt_handle = delivery.receipt_handle.clone();
    backend.settle(&orders(), vec![Settlement { receipt_handle, verdict }]).await?.remove(0)
}

fn nack() -> Verdict {
    Verdict::Nack { delay: Duration::ZERO, error: None }
}

fn text(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.letter.payload).unwrap()
}

/// What is in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort_unstable();
    names
}

/// The message files in a folder, sorted.
fn messages(folder: &Path) -> Vec<String> {
    names(folder).into_iter().filter(|name| name.ends_with(".json")).collect()
}

/// Waits until something is so.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs a script; what it says.
fn bash(folder: &Path, script: &str) -> String {
    let mut command = Command::new("bash");
    let output = command.args(["-euo", "pipefail", "-c", script]).current_dir(folder).output();
    said(output.expect("there is a bash"), script)
}

fn said(output: Output, what: &str) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{what}: {}\n{text}\n{error}", output.status);
    text
}

/// Says something to whoever runs the tests.
#[expect(clippy::print_stdout, reason = "it is what was not tested, and why")]
fn say(text: &str) {
    println!("{text}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Which test this is the second life of, if it is one.
const AGAIN: &str = "MAILBOX_TEST_AGAIN";

fn is_second_life() -> bool {
    std::env::var_os(AGAIN).is_some()
}

/// A command that runs one test of this program again, alone in a process. `before` is how a shell
/// begins that: with a limit, a mask, or a program that takes rights away.
fn again(test: &str, before: &str) -> Command {
    let mut command = Command::new("bash");
    let script = format!("{before} \"$0\" --exact directory::{test} --nocapture");
    command.args(["-euc", &script]).arg(std::env::current_exe().unwrap()).env(AGAIN, test);
    command
}

/// Runs one test of this program again, alone in a process.
fn run_again(test: &str, before: &str) {
    let output = again(test, before).output().expect("there is a bash");
    let text = said(output, before);
    assert!(text.contains("1 passed"), "{test} was not run: {text}");
}

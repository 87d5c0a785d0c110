//! What tests need that do something to their servers: a server set up as they like, any mailboxes
//! on it, and plain commands beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{
    Backend, Delivery, Error, ErrorKind, MessageId, Name, Outgoing, ReceiveOptions, Result,
    Settlement, Stats, Verdict,
};
use mailbox_redis_servers::Node;
use redis::{Connection, FromRedisValue};

/// The keys of a mailbox, without its name.
pub(super) const PARTS: [&str; 15] = [
    "pending",
    "invisible",
    "data",
    "meta",
    "delayed",
    "ages",
    "waiting",
    "heads",
    "dead",
    "graves",
    "known",
    "known_until",
    "state",
    "rules",
    "gone",
];

/// A server, and whoever uses it.
pub(super) struct Stage {
    pub(super) node: Node,
    pub(super) backend: Arc<RedisBackend>,
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(&[], RedisConfig::default()).await
    }

    pub(super) async fn with(options: &[(&str, &str)], config: RedisConfig) -> Self {
        let node = Node::start(options).unwrap();
        let backend = RedisBackend::open_with(&url(&node), config).await.unwrap();
        Self { node, backend }
    }

    /// The same server, as another process would open it.
    pub(super) async fn another(&self) -> Arc<RedisBackend> {
        RedisBackend::open(&url(&self.node)).await.unwrap()
    }

    /// For plain commands.
    pub(super) fn connect(&self) -> Connection {
        self.node.connect().unwrap()
    }
}

pub(super) fn url(node: &Node) -> String {
    format!("redis://{}", node.address())
}

pub(super) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A key of a mailbox.
pub(super) fn key(mailbox: &str, part: &str) -> String {
    format!("{{queue:{mailbox}}}:{part}")
}

pub(super) async fn send(
    backend: &RedisBackend,
    mailbox: &str,
    payload: impl Into<String>,
) -> Result<MessageId> {
    let message = Outgoing::new(payload.into().into_bytes().into());
    Ok(send_this(backend, mailbox, message).await?.remove(0))
}

pub(super) async fn send_this(
    backend: &RedisBackend,
    mailbox: &str,
    message: Outgoing,
) -> Result<Vec<MessageId>> {
    let sent = backend.send(&name(mailbox), vec![message]).await?;
    sent.into_iter().map(|one| one.map(|sent| sent.id)).collect()
}

/// Up to ten, held for an hour.
pub(super) async fn receive(
    backend: &RedisBackend,
    mailbox: &str,
    wait: Duration,
) -> Result<Vec<Delivery>> {
    receive_for(backend, mailbox, 10, wait, Duration::from_secs(3_600)).await
}

pub(super) async fn receive_for(
    backend: &RedisBackend,
    mailbox: &str,
    most: u32,
    wait: Duration,
    visibility_timeout: Duration,
) -> Result<Vec<Delivery>> {
    let options = ReceiveOptions::new().with_max_messages(most).with_wait(wait);
    let options = options.with_visibility_timeout(visibility_timeout);
    backend.receive(&name(mailbox), &options).await
}

pub(super) async fn settle(
    backend: &RedisBackend,
    mailbox: &str,
    delivery: &Delivery,
    verdict: Verdict,
) -> Result<()> {
    let receipt_handle = delivery.receipt_handle.clone();
    let batch = vec![Settlement { receipt_handle, verdict }];
    backend.settle(&name(mailbox), batch).await?.remove(0)
}

pub(super) async fn acknowledge(
    backend: &RedisBackend,
    mailbox: &str,
    delivery: &Delivery,
) -> Result<()> {
    settle(backend, mailbox, delivery, Verdict::Acknowledge).await
}

pub(super) async fn stats(backend: &RedisBackend, mailbox: &str) -> Stats {
    backend.stats(&name(mailbox)).await.unwrap()
}

pub(super) fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.letter.payload).into_owned()
}

/// Runs a plain command.
pub(super) fn run<T: FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    try_run(connection, words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

pub(super) fn try_run<T: FromRedisValue>(
    connection: &mut Connection,
    words: &[&str],
) -> redis::RedisResult<T> {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).query(connection)
}

/// One line of what `INFO` says.
pub(super) fn info(connection: &mut Connection, section: &str, field: &str) -> String {
    let text: String = run(connection, &["INFO", section]);
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO {section} has no {field}")).trim().to_owned()
}

/// Keys, with what is in them.
pub(super) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// All keys of a server.
pub(super) fn contents(connection: &mut Connection) -> Contents {
    let keys: Vec<Vec<u8>> = run(connection, &["KEYS", "*"]);
    let dump = |key: Vec<u8>| {
        let value: Vec<u8> = redis::cmd("DUMP").arg(&key).query(connection).unwrap();
        (key, value)
    };
    keys.into_iter().map(dump).collect()
}

/// Whether nothing has changed but what is expected to.
#[track_caller]
pub(super) fn expect_same(connection: &mut Connection, before: &Contents, what: &str) {
    let after = contents(connection);
    let keys = before.keys().chain(after.keys());
    let changed = keys.filter(|key| before.get(*key) != after.get(*key));
    let changed: BTreeSet<_> = changed.map(|key| String::from_utf8_lossy(key)).collect();
    assert!(changed.is_empty(), "{what}: {changed:?} changed");
}

/// Whether an error is what it has to be: its kind, naming what it is about, and telling no secret.
#[track_caller]
pub(super) fn expect(error: &Error, kind: ErrorKind, names: &str, secrets: &[&str]) {
    let text = format!("{error:#} {error:?}");
    assert_eq!(error.kind(), kind, "{text}");
    assert!(error.to_string().contains(names), "does not name {names}: {text}");
    for secret in secrets {
        assert!(!text.contains(secret), "tells a secret: {text}");
    }
}

/// Says something to whoever runs the tests.
#[expect(clippy::print_stdout, reason = "it is what was measured")]
pub(super) fn say(text: &str) {
    println!("{text}");
}

//! Mailboxes on Redis, from outside: through the library, and with plain commands beside it. Here
//! is what all of them need: a server of their own, its keys, and plain commands to look at them.

mod abandoned;
mod amounts;
mod bad_input;
mod failover;
mod hostile;
mod late;
mod layout;
mod lifetimes;
mod listening;
mod opening;
mod points;
mod proxy;
mod python;
mod roles;
mod stage;
mod tls;
mod together;
mod trouble;
mod waiting;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{
    Backend, Delivery, Mailbox, Name, Outgoing, ReceiveOptions, Result, Settlement, Verdict,
};
use mailbox_redis_servers::Node;
use redis::{Connection, FromRedisValue};

/// How long anything may take that is not a matter of time.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long something may take that happens at once, on a machine that is busy.
const SOON: Duration = Duration::from_secs(2);
/// Between two looks of a test at something that will happen.
const PAUSE: Duration = Duration::from_millis(5);

/// A server, the mailbox `jobs` on it, and a connection for plain commands.
struct Place {
    node: Node,
    plain: Mutex<Connection>,
    backend: Arc<RedisBackend>,
}

impl Place {
    async fn new() -> Self {
        Self::with(RedisConfig::default()).await
    }

    async fn with(config: RedisConfig) -> Self {
        let node = Node::start(&[]).unwrap();
        let plain = Mutex::new(node.connect().unwrap());
        let backend = RedisBackend::open_with(&url(&node.address()), config).await.unwrap();
        Self { node, plain, backend }
    }

    /// The same server, as another process would use it.
    async fn another(&self, config: RedisConfig) -> Arc<RedisBackend> {
        RedisBackend::open_with(&url(&self.node.address()), config).await.unwrap()
    }

    fn jobs<T, R>(&self) -> Mailbox<T, R>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
        R: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
    {
        Mailbox::new(Arc::clone(&self.backend) as Arc<dyn Backend>, jobs())
    }

    /// Runs a plain command, its words as they are.
    fn run<A: FromRedisValue>(&self, words: &[&str]) -> A {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.plain.lock().unwrap()).expect("the command makes sense")
    }

    /// The keys of the mailbox that there are, by what comes behind the hash tag, sorted. Nothing
    /// else may be there.
    fn parts(&self) -> Vec<String> {
        let keys: Vec<String> = self.run(&["KEYS", "*"]);
        let part = |key: String| {
            let part = key.strip_prefix("{queue:jobs}:");
            part.unwrap_or_else(|| panic!("{key} is no key of the mailbox")).to_owned()
        };
        let mut parts: Vec<String> = keys.into_iter().map(part).collect();
        parts.sort_unstable();
        parts
    }

    fn list(&self, part: &str) -> Vec<String> {
        self.run(&["LRANGE", &key(part), "0", "-1"])
    }

    fn hash(&self, part: &str) -> BTreeMap<String, String> {
        self.run(&["HGETALL", &key(part)])
    }

    fn scores(&self, part: &str) -> Vec<(String, f64)> {
        self.run(&["ZRANGE", &key(part), "0", "-1", "WITHSCORES"])
    }

    fn ttl(&self, part: &str) -> i64 {
        self.run(&["TTL", &key(part)])
    }

    /// What is kept in `meta` of a message: field without the id, value.
    fn meta(&self, id: &str) -> BTreeMap<String, String> {
        let own = |(field, value): (String, String)| {
            let field = field.strip_prefix(id)?.strip_prefix(':')?.to_owned();
            Some((field, value))
        };
        self.hash("meta").into_iter().filter_map(own).collect()
    }

    /// The server's time, in seconds.
    fn now(&self) -> f64 {
        let (seconds, micros): (u64, u64) = self.run(&["TIME"]);
        Duration::new(seconds, u32::try_from(micros).unwrap() * 1_000).as_secs_f64()
    }

    /// How often the server has run a command since it was started.
    fn calls(&self, command: &str) -> u64 {
        let stats: String = self.run(&["INFO", "commandstats"]);
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// Scripts that were run.
    fn scripts(&self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }

    /// What the server says of each of its clients but those for plain commands.
    fn clients(&self) -> Vec<String> {
        let clients: String = self.run(&["CLIENT", "LIST", "TYPE", "normal"]);
        let own: u64 = self.run(&["CLIENT", "ID"]);
        let own = format!("id={own} ");
        clients.lines().filter(|line| !line.starts_with(&own)).map(str::to_owned).collect()
    }

    async fn send(&self, payload: &str) -> String {
        self.send_message(Outgoing::new(payload.to_owned().into())).await
    }

    async fn send_message(&self, message: Outgoing) -> String {
        send(&*self.backend, message).await.unwrap()
    }

    /// Takes one message for so long.
    async fn receive(&self, timeout: Duration) -> Option<Delivery> {
        let options = ReceiveOptions::new().with_visibility_timeout(timeout);
        self.backend.receive(&jobs(), &options).await.unwrap().pop()
    }

    async fn settle(&self, delivery: &Delivery, verdict: Verdict) -> Result<()> {
        self.settle_handle(&delivery.receipt_handle.to_string(), verdict).await
    }

    async fn settle_handle(&self, handle: &str, verdict: Verdict) -> Result<()> {
        let receipt_handle = mailbox::ReceiptHandle::from_text(handle);
        let batch = vec![Settlement { receipt_handle, verdict }];
        self.backend.settle(&jobs(), batch).await?.remove(0)
    }

    /// Waits until the server's time is behind every deadline in `invisible`.
    async fn until_all_due(&self) {
        until("all is due", || async {
            self.scores("invisible").iter().all(|(_, due)| *due < self.now())
        })
        .await;
    }
}

fn url(address: &str) -> String {
    format!("redis://{address}")
}

fn jobs() -> Name {
    "jobs".parse().unwrap()
}

fn key(part: &str) -> String {
    format!("{{queue:jobs}}:{part}")
}

async fn send(backend: &dyn Backend, message: Outgoing) -> Result<String> {
    Ok(backend.send(&jobs(), vec![message]).await?.remove(0)?.id.to_string())
}

const fn nack(delay: Duration) -> Verdict {
    Verdict::Nack { delay, error: None }
}

/// Ten seconds and the like.
const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until something is so.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

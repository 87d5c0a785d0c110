//! Somebody else at the same mailbox, who knows the shared part of the layout only: four keys, four
//! fields, a script each. It does what the Python implementation does, mistakes included; what it
//! does not know it neither reads nor writes.

mod bodies;
mod leases;
mod leftovers;
mod mixed;

use std::time::Duration;

use mailbox::Timestamp;
use mailbox_redis_servers::Node;
use redis::{Connection, FromRedisValue};

use super::key;

/// How long its keys live.
const TTL: &str = "259200";

/// Before each script: the keys, the time, and that whole keys live on.
const BEFORE: &str = "
local PENDING, INVISIBLE, DATA, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local function live_on(result)
  for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[1]) end
  return result
end
-- ARGV[2] id, ARGV[3] suffix of its handle.
local function is_held()
  return redis.call('HGET', META, ARGV[2] .. ':handle') == ARGV[3]
    and redis.call('ZSCORE', INVISIBLE, ARGV[2])
end
";
/// ARGV from 2 on: id, body, time of sending, reply address or ''.
const SEND: &str = "
redis.call('HSET', DATA, ARGV[2], ARGV[3])
redis.call('HSET', META, ARGV[2] .. ':enqueued', ARGV[4])
if ARGV[5] ~= '' then redis.call('HSET', META, ARGV[2] .. ':reply_to', ARGV[5]) end
redis.call('LPUSH', PENDING, ARGV[2])
return live_on(1)
";
/// ARGV from 2 on: suffix, visibility timeout in seconds.
const RECEIVE: &str = "
local id = redis.call('RPOP', PENDING)
if not id then return false end
local count = redis.call('HINCRBY', META, id .. ':count', 1)
redis.call('HSET', META, id .. ':handle', ARGV[2])
redis.call('ZADD', INVISIBLE, now + ARGV[3], id)
return live_on({ id, count, redis.call('HGET', DATA, id) or false,
  redis.call('HGET', META, id .. ':enqueued') or false,
  redis.call('HGET', META, id .. ':reply_to') or false })
";
const ACK: &str = "
if not is_held() then return 0 end
redis.call('ZREM', INVISIBLE, ARGV[2])
redis.call('HDEL', DATA, ARGV[2])
redis.call('HDEL', META, ARGV[2] .. ':enqueued', ARGV[2] .. ':reply_to', ARGV[2] .. ':count',
  ARGV[2] .. ':handle')
return live_on(1)
";
/// ARGV[4]: delay in seconds.
const NACK: &str = "
if not is_held() then return 0 end
redis.call('ZREM', INVISIBLE, ARGV[2])
redis.call('HDEL', META, ARGV[2] .. ':handle')
if tonumber(ARGV[4]) == 0 then
  redis.call('LPUSH', PENDING, ARGV[2])
else
  redis.call('ZADD', INVISIBLE, now + ARGV[4], ARGV[2])
end
return live_on(1)
";
const EXTEND: &str = "
if not is_held() then return 0 end
redis.call('ZADD', INVISIBLE, now + ARGV[4], ARGV[2])
return live_on(1)
";
const REAP: &str = "
local due = redis.call('ZRANGEBYSCORE', INVISIBLE, '-inf', now)
for _, id in ipairs(due) do
  redis.call('ZREM', INVISIBLE, id)
  redis.call('LPUSH', PENDING, id)
  redis.call('HDEL', META, id .. ':handle')
end
return live_on(#due)
";

/// Another process, on a connection of its own.
pub(super) struct Python {
    connection: Connection,
    mailbox: String,
}

/// What it has received.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) id: String,
    pub(super) count: u64,
    /// None if the id was in line without it.
    pub(super) body: Option<String>,
    pub(super) enqueued: Option<String>,
    pub(super) reply_to: Option<String>,
    pub(super) suffix: String,
}

impl Taken {
    /// As it shows its handles.
    fn handle(&self) -> String {
        format!("{}:{}", self.id, self.suffix)
    }
}

impl Python {
    /// At the mailbox `jobs`.
    pub(super) fn at(node: &Node) -> Self {
        Self::at_mailbox(node, "jobs")
    }

    fn at_mailbox(node: &Node, mailbox: &str) -> Self {
        Self { connection: node.connect().unwrap(), mailbox: mailbox.to_owned() }
    }

    fn run<A: FromRedisValue>(&mut self, script: &str, arguments: &[&str]) -> A {
        let mut command = redis::cmd("EVAL");
        command.arg(format!("{BEFORE}{script}")).arg(4);
        for part in ["pending", "invisible", "data", "meta"] {
            command.arg(format!("{{queue:{}}}:{part}", self.mailbox));
        }
        command.arg(TTL).arg(arguments);
        command.query(&mut self.connection).expect("its scripts are right")
    }

    pub(super) fn send(&mut self, body: &str) -> String {
        let id = uuid4();
        self.send_as(&id, body, "");
        id
    }

    pub(super) fn send_as(&mut self, id: &str, body: &str, reply_to: &str) {
        let _: u64 = self.run(SEND, &[id, body, &isoformat(), reply_to]);
    }

    pub(super) fn receive(&mut self, timeout: Duration) -> Option<Taken> {
        let suffix = uuid4();
        let timeout = timeout.as_secs_f64().to_string();
        type Answer = Option<(String, u64, Option<String>, Option<String>, Option<String>)>;
        let answer: Answer = self.run(RECEIVE, &[&suffix, &timeout]);
        let (id, count, body, enqueued, reply_to) = answer?;
        Some(Taken { id, count, body, enqueued, reply_to, suffix })
    }

    pub(super) fn ack(&mut self, taken: &Taken) -> bool {
        self.ack_handle(&taken.handle())
    }

    /// By a handle as it is shown, whoever got it.
    pub(super) fn ack_handle(&mut self, handle: &str) -> bool {
        let (id, suffix) = handle.rsplit_once(':').unwrap();
        self.run(ACK, &[id, suffix])
    }

    fn nack(&mut self, taken: &Taken, delay: Duration) -> bool {
        self.run(NACK, &[&taken.id, &taken.suffix, &delay.as_secs_f64().to_string()])
    }

    fn extend(&mut self, taken: &Taken, timeout: Duration) -> bool {
        self.run(EXTEND, &[&taken.id, &taken.suffix, &timeout.as_secs_f64().to_string()])
    }

    /// What its background thread does now and then; how many came back.
    pub(super) fn reap(&mut self) -> u64 {
        self.run(REAP, &[])
    }
}

fn uuid4() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

/// As `datetime.now(UTC).isoformat()` writes it: with microseconds.
fn isoformat() -> String {
    Timestamp::now().to_string().replace('Z', "456+00:00")
}

/// A key of the mailbox `jobs` that both sides know.
fn is_shared(part: &str) -> bool {
    ["pending", "invisible", "data", "meta"].contains(&part)
}

/// Writes a message with plain commands, as a program without scripts would.
fn write_by_hand(connection: &mut Connection, id: &str, body: &str, reply_to: Option<&str>) {
    let mut pipeline = redis::pipe();
    pipeline.cmd("HSET").arg(key("data")).arg(id).arg(body);
    pipeline.cmd("HSET").arg(key("meta")).arg(format!("{id}:enqueued")).arg(isoformat());
    if let Some(reply_to) = reply_to {
        pipeline.cmd("HSET").arg(key("meta")).arg(format!("{id}:reply_to")).arg(reply_to);
    }
    pipeline.cmd("LPUSH").arg(key("pending")).arg(id);
    pipeline.exec(connection).unwrap();
}

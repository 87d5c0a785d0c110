//! What others do with the shared layout: one call per message, each of which does no more than
//! `docs/redis-format.md` tells others to do. No dead letters, no order of age, nothing that is
//! safe to do again after a lost answer.

use bytes::Bytes;
use mailbox_redis_servers::Node;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script, Value};

use crate::redis::ours::HELD;
use crate::redis::{ENQUEUED, connect};

const KEYS: [&str; 4] = ["pending", "invisible", "data", "meta"];
const TTL: u32 = 259_200;
const SUFFIX: &str = "0123456789abcdef0123456789abcdef";

/// Arguments: id, payload, time of sending, seconds to live.
const SEND: &str = "
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[4], ARGV[1] .. ':enqueued', ARGV[3])
redis.call('LPUSH', KEYS[1], ARGV[1])
for at = 1, 4 do
  redis.call('EXPIRE', KEYS[at], ARGV[4])
end
return 1
";

/// Arguments: visibility timeout, suffix of the handle, seconds to live.
const RECEIVE: &str = "
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('LPUSH', KEYS[1], id)
  redis.call('HDEL', KEYS[4], id .. ':handle')
end
local id = redis.call('RPOP', KEYS[1])
if not id then
  return false
end
local payload = redis.call('HGET', KEYS[3], id)
local count = redis.call('HINCRBY', KEYS[4], id .. ':count', 1)
redis.call('HSET', KEYS[4], id .. ':handle', ARGV[2])
redis.call('ZADD', KEYS[2], now + ARGV[1], id)
local kept = redis.call('HMGET', KEYS[4], id .. ':enqueued', id .. ':reply_to')
for at = 1, 4 do
  redis.call('EXPIRE', KEYS[at], ARGV[3])
end
return {id, payload, count, kept[1], kept[2]}
";

/// Arguments: id, suffix of its handle, seconds to live.
const ACKNOWLEDGE: &str = "
local time, id = redis.call('TIME'), ARGV[1]
local now = time[1] + time[2] / 1000000
if redis.call('HGET', KEYS[4], id .. ':handle') ~= ARGV[2] then
  return 0
end
local due = redis.call('ZSCORE', KEYS[2], id)
if not due or tonumber(due) <= now then
  return 0
end
redis.call('ZREM', KEYS[2], id)
redis.call('HDEL', KEYS[3], id)
redis.call('HDEL', KEYS[4], id .. ':enqueued', id .. ':reply_to', id .. ':count', id .. ':handle')
for at = 1, 4 do
  redis.call('EXPIRE', KEYS[at], ARGV[3])
end
return 1
";

/// A bare client with these scripts.
#[derive(Debug)]
pub(crate) struct Layout {
    connection: MultiplexedConnection,
    send: Script,
    receive: Script,
    acknowledge: Script,
    keys: [String; KEYS.len()],
    sent: u64,
}

impl Layout {
    /// On a mailbox of its own.
    pub(crate) async fn connect(node: &Node, mailbox: &str) -> Self {
        let mut connection = connect(node).await;
        for text in [SEND, RECEIVE, ACKNOWLEDGE] {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            connection.send_packed_command(&load).await.expect("a good script");
        }
        Self {
            connection,
            send: Script::new(SEND),
            receive: Script::new(RECEIVE),
            acknowledge: Script::new(ACKNOWLEDGE),
            keys: KEYS.map(|key| format!("{{queue:{mailbox}}}:{key}")),
            sent: 0,
        }
    }

    fn order(&self, script: &Script) -> Cmd {
        let mut order = redis::cmd("EVALSHA");
        order.arg(script.get_hash()).arg(KEYS.len()).arg(&self.keys);
        order
    }

    async fn call(&self, order: &Cmd) -> Value {
        self.connection.clone().send_packed_command(order).await.expect("the server runs")
    }

    /// Sends so many messages, receives as many and acknowledges them.
    pub(crate) async fn cycle(&mut self, mut bodies: impl FnMut() -> Bytes, count: usize) {
        for _ in 0..count {
            let mut send = self.order(&self.send);
            send.arg(format!("{:026}", self.sent)).arg(&bodies()[..]).arg(ENQUEUED).arg(TTL);
            self.sent += 1;
            assert_eq!(self.call(&send).await, Value::Int(1));
        }
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            let mut receive = self.order(&self.receive);
            receive.arg(HELD.as_secs()).arg(SUFFIX).arg(TTL);
            let Value::Array(received) = self.call(&receive).await else {
                panic!("a message waits");
            };
            let Some(Value::BulkString(id)) = received.into_iter().next() else {
                panic!("a message has an id");
            };
            ids.push(id);
        }
        for id in ids {
            let mut acknowledge = self.order(&self.acknowledge);
            acknowledge.arg(id).arg(SUFFIX).arg(TTL);
            assert_eq!(self.call(&acknowledge).await, Value::Int(1));
        }
    }
}

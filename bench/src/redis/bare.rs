//! The limit: our own scripts, called one after the other by a bare client with the arguments that
//! we would give them. No routing, no retry, no limit of time; the payload that comes back is not
//! looked at, and nothing is made of it.

use bytes::Bytes;
use mailbox_redis_servers::Node;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script, Value};

use crate::redis::ours::HELD;
use crate::redis::{ENQUEUED, connect};

/// In the order in which scripts take them.
const KEYS: [&str; 15] = [
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
/// The time of the server, three days to live, and the rules of a mailbox that has none.
const PREAMBLE: [&str; 3] = ["", "259200", ""];
/// What is kept beside a payload that has nothing but a hash.
const BESIDE: &str = concat!(
    r#"{"hash":"0123456789abcdef0123456789abcdef"#,
    r#"0123456789abcdef0123456789abcdef"}"#
);
const SECRET: &str = "0123456789abcdef0123456789abcdef";

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("../../../crates/mailbox/src/backends/redis/scripts/prelude.lua"),
            "fill_seldom = function()\n",
            include_str!("../../../crates/mailbox/src/backends/redis/scripts/seldom.lua"),
            "end\n",
            include_str!(concat!(
                "../../../crates/mailbox/src/backends/redis/scripts/",
                $name,
                ".lua"
            ))
        ))
    };
}

/// Hashes of scripts that a server has to know: whoever else uses them has told it. So they are the
/// same to the letter.
#[derive(Debug)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    send: Script,
    receive: Script,
    settle: Script,
    keys: [String; KEYS.len()],
    sent: u64,
}

impl Bare {
    /// On a mailbox that nobody has used: its ids are the same each time.
    pub(crate) async fn connect(node: &Node, mailbox: &str) -> Self {
        Self {
            connection: connect(node).await,
            send: script!("send"),
            receive: script!("receive"),
            settle: script!("settle"),
            keys: KEYS.map(|key| format!("{{queue:{mailbox}}}:{key}")),
            sent: 0,
        }
    }

    fn order(&self, script: &Script) -> Cmd {
        let mut order = redis::cmd("EVALSHA");
        order.arg(script.get_hash()).arg(KEYS.len()).arg(&self.keys).arg(&PREAMBLE);
        order
    }

    async fn call(&self, order: Cmd) -> Vec<Value> {
        let answer = self.connection.clone().send_packed_command(&order).await;
        match answer.expect("the server runs") {
            Value::Array(values) => values,
            other => panic!("a script that we have called before says {other:?}"),
        }
    }

    /// Sends one message, receives one, acknowledges it.
    pub(crate) async fn cycle(&mut self, body: &Bytes) {
        // As long as an id of ours.
        let id = format!("{:026}", self.sent);
        self.sent += 1;
        let mut send = self.order(&self.send);
        send.arg(ENQUEUED).arg("1").arg(&id).arg(&body[..]).arg(BESIDE).arg("");
        assert_eq!(self.call(send).await, [Value::BulkString(Vec::new())]);

        let mut receive = self.order(&self.receive);
        receive.arg("1").arg(HELD.as_micros().to_string()).arg(SECRET).arg("");
        let received = self.call(receive).await;
        let [_, _, _, _, Value::BulkString(id), Value::BulkString(suffix), ..] = &received[..]
        else {
            panic!("a message waits, and what comes is {received:?}");
        };

        let mut acknowledge = self.order(&self.settle);
        acknowledge.arg(id).arg(suffix).arg("ack");
        assert_eq!(self.call(acknowledge).await, [Value::BulkString(Vec::new())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::load::Bodies;
    use crate::redis::ours::Ours;

    /// The limit is one as long as it calls what we call.
    #[tokio::test]
    async fn scripts_take_what_a_bare_client_gives_them() {
        let node = Node::start(&[]).expect("redis-server is installed");
        let mut bodies = Bodies::new();
        Ours::open(&node, "ours").await.cycle(&mut bodies, 1).await;
        let mut bare = Bare::connect(&node, "bare").await;
        for _ in 0..3 {
            bare.cycle(&bodies.next()).await;
        }
    }
}

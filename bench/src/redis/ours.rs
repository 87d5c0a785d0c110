//! A mailbox on Redis as the bench uses it: through the `Backend` trait, bytes only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, Delivery, Durability, Name, Outgoing, ReceiveOptions, Settlement, Verdict};
use mailbox_redis_servers::Node;

use crate::journal::load::Bodies;

/// Longer than any part takes: nothing comes back while it is measured.
pub(crate) const HELD: Duration = Duration::from_secs(3_600);
/// Nobody waits longer for a message that is there.
const SOON: Duration = Duration::from_secs(20);

/// One mailbox.
#[derive(Debug)]
pub(crate) struct Ours {
    backend: Arc<RedisBackend>,
    mailbox: Name,
}

impl Ours {
    /// Everything as it is by default: a send is answered when the server has it.
    pub(crate) async fn open(node: &Node, mailbox: &str) -> Arc<Self> {
        Self::open_with(node, mailbox, Durability::Async).await
    }

    /// A send waits for this.
    pub(crate) async fn open_with(node: &Node, mailbox: &str, durability: Durability) -> Arc<Self> {
        let url = format!("redis://{}", node.address());
        let config = RedisConfig::default().with_durability(durability);
        let backend = RedisBackend::open_with(&url, config).await.expect("the server runs");
        Arc::new(Self { backend, mailbox: Name::try_from(mailbox).expect("a good name") })
    }

    /// Sends so many at once.
    pub(crate) async fn send(&self, bodies: &mut Bodies, count: usize) {
        let batch = (0..count).map(|_| Outgoing::new(bodies.next())).collect();
        self.send_all(batch).await;
    }

    /// Sends one.
    pub(crate) async fn send_one(&self, body: Bytes) {
        self.send_all(vec![Outgoing::new(body)]).await;
    }

    async fn send_all(&self, batch: Vec<Outgoing>) {
        let sent = self.backend.send(&self.mailbox, batch).await.expect("the server runs");
        assert!(sent.iter().all(Result::is_ok), "a plain send into an unbounded mailbox");
    }

    /// Receives up to so many, of which one at least must come.
    pub(crate) async fn receive(&self, most: usize) -> Vec<Delivery> {
        let options = ReceiveOptions::new()
            .with_max_messages(u32::try_from(most).expect("a small batch"))
            .with_visibility_timeout(HELD)
            .with_wait(SOON);
        let received = self.backend.receive(&self.mailbox, &options).await;
        let received = received.expect("the server runs");
        assert!(!received.is_empty(), "messages wait");
        received
    }

    /// Acknowledges all of it.
    pub(crate) async fn acknowledge(&self, deliveries: Vec<Delivery>) {
        let settlement = |delivery: Delivery| Settlement {
            receipt_handle: delivery.receipt_handle,
            verdict: Verdict::Acknowledge,
        };
        let batch = deliveries.into_iter().map(settlement).collect();
        let settled = self.backend.settle(&self.mailbox, batch).await.expect("the server runs");
        assert!(settled.iter().all(Result::is_ok), "acknowledged in time");
    }

    /// Sends so many, receives as many and acknowledges them: three calls.
    pub(crate) async fn cycle(&self, bodies: &mut Bodies, count: usize) {
        self.send(bodies, count).await;
        let mut left = count;
        while left > 0 {
            let received = self.receive(left).await;
            left -= received.len();
            self.acknowledge(received).await;
        }
    }

    /// Removes everything.
    pub(crate) async fn clear(&self) {
        self.backend.purge(&self.mailbox).await.expect("the server runs");
    }

    /// Ends it.
    pub(crate) async fn close(&self) {
        self.backend.close().await.expect("it closes");
    }
}

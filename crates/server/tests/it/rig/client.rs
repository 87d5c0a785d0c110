//! Calls by their names, on one connection with one capability.

use mailbox_wire::json::{
    AckRequest, BatchMessage, DeadRequest, Envelope, ExtendRequest, NackRequest, PolicyChange,
    ReceiveRequest, Received, Records, SendBatchRequest, SendRequest, Sent, SentBatch, Stats,
    Topic,
};
use serde::Serialize;

use super::{Connection, Reply, receive, send};

/// A client of the service.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    bearer: String,
}

impl Client {
    pub(crate) fn new(connection: Connection, capability: &str) -> Self {
        Self { connection, bearer: format!("Bearer {capability}") }
    }

    /// A request with this body.
    pub(crate) async fn post(&mut self, path: &str, question: &impl Serialize) -> Reply {
        self.post_with(path, &[], question).await
    }

    /// The same with headers of its own.
    pub(crate) async fn post_with(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        question: &impl Serialize,
    ) -> Reply {
        let body = serde_json::to_vec(question).unwrap();
        self.raw("POST", path, headers, &body).await
    }

    pub(crate) async fn raw(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut all = vec![("authorization", self.bearer.as_str())];
        all.extend_from_slice(headers);
        self.connection.call(method, path, &all, body).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.raw("GET", path, &[], b"").await
    }

    pub(crate) async fn configure(&mut self, topic: &str, change: PolicyChange) {
        let body = serde_json::to_vec(&change).unwrap();
        let path = format!("/v1/topics/{topic}");
        assert_eq!(self.raw("PUT", &path, &[], &body).await.status, 200);
    }

    pub(crate) async fn try_send(&mut self, question: &SendRequest) -> Reply {
        self.post("/v1/send", question).await
    }

    pub(crate) async fn send(&mut self, topic: &str, bytes: impl AsRef<[u8]>) -> Sent {
        self.try_send(&send(topic, bytes)).await.good()
    }

    pub(crate) async fn send_batch(
        &mut self,
        topic: &str,
        messages: Vec<BatchMessage>,
    ) -> SentBatch {
        let question = SendBatchRequest { topic: Some(topic.to_owned()), messages };
        self.post("/v1/send/batch", &question).await.good()
    }

    pub(crate) async fn try_receive(&mut self, question: &ReceiveRequest) -> Reply {
        self.post("/v1/recv", question).await
    }

    /// Up to so many, hidden for so long.
    pub(crate) async fn receive(&mut self, topic: &str, most: u32, ms: u64) -> Vec<Envelope> {
        let reply = self.try_receive(&receive(topic, most, ms)).await;
        reply.good::<Received>().messages
    }

    /// One that must be there.
    pub(crate) async fn receive_one(&mut self, topic: &str, ms: u64) -> Envelope {
        let mut messages = self.receive(topic, 1, ms).await;
        messages.pop().expect("a message")
    }

    pub(crate) async fn ack(&mut self, id: &str, handle: Option<&str>) -> Reply {
        let question = AckRequest { receipt_handle: handle.map(str::to_owned) };
        self.post(&format!("/v1/ack/{id}"), &question).await
    }

    pub(crate) async fn ack_it(&mut self, message: &Envelope) -> Reply {
        self.ack(&message.msg_id, message.receipt_handle.as_deref()).await
    }

    pub(crate) async fn nack(&mut self, message: &Envelope, dead: bool) -> Reply {
        let question = NackRequest {
            receipt_handle: message.receipt_handle.clone(),
            dead: dead.then_some(true),
            delay_ms: (!dead).then_some(0),
            reason: Some("not today".to_owned()),
        };
        self.post(&format!("/v1/nack/{}", message.msg_id), &question).await
    }

    pub(crate) async fn extend(&mut self, message: &Envelope, visibility_ms: u64) -> Reply {
        let question =
            ExtendRequest { receipt_handle: message.receipt_handle.clone(), visibility_ms };
        self.post(&format!("/v1/extend/{}", message.msg_id), &question).await
    }

    pub(crate) async fn stats(&mut self, topic: &str) -> Stats {
        self.get(&format!("/v1/topics/{topic}")).await.good::<Topic>().stats
    }

    pub(crate) async fn dead(&mut self, topic: &str) -> Records {
        self.get(&format!("/v1/dlq/{topic}")).await.good()
    }

    pub(crate) async fn reprocess(&mut self, topic: &str) -> Reply {
        let question = DeadRequest { topic: topic.to_owned(), ..DeadRequest::default() };
        self.post("/v1/dlq/reprocess", &question).await
    }
}

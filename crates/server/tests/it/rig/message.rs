//! Requests as tests make them.

use mailbox_wire::json::{BatchMessage, ReceiveRequest, SendRequest};
use mailbox_wire::payload::Payload;

/// Bytes of a message.
pub(crate) fn payload(bytes: impl AsRef<[u8]>) -> Payload {
    Payload(bytes.as_ref().to_vec().into())
}

/// One message to send.
pub(crate) fn send(topic: &str, bytes: impl AsRef<[u8]>) -> SendRequest {
    SendRequest { topic: topic.to_owned(), payload_b64: payload(bytes), ..SendRequest::default() }
}

/// One message of a batch.
pub(crate) fn message(bytes: impl AsRef<[u8]>) -> BatchMessage {
    BatchMessage { payload_b64: payload(bytes), ..BatchMessage::default() }
}

/// Up to so many messages, hidden for so long.
pub(crate) fn receive(topic: &str, max_messages: u32, visibility_ms: u64) -> ReceiveRequest {
    ReceiveRequest {
        topic: topic.to_owned(),
        max_messages: Some(max_messages),
        visibility_ms: Some(visibility_ms),
        ..ReceiveRequest::default()
    }
}

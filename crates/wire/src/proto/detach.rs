//! Payloads out of the buffer they came in.

use bytes::Bytes;

use super::v1;
use super::v1::request::Call;
use crate::payload::wiped;

/// A message with payloads.
///
/// Reading a message copies no payload: each is a slice of the buffer that was read, and keeps all
/// of that buffer alive. For an answer that is read and forgotten that is best; but a message that
/// stays for days must not keep a megabyte of its neighbours alive. So whoever keeps payloads
/// detaches them first: each gets memory of its own, which is wiped when nobody has it any more,
/// as payloads from JSON are.
pub trait Detach {
    /// Copies each payload into memory of its own, wiped in the end.
    fn detach(&mut self);
}

fn detach(payload: &mut Bytes) {
    // Nothing has nothing to wipe, but an empty slice may hold on to its buffer, too.
    *payload = if payload.is_empty() { Bytes::new() } else { wiped(payload.to_vec()) };
}

macro_rules! detach_payload {
    ($($message:ident),*) => {$(
        impl Detach for v1::$message {
            fn detach(&mut self) {
                detach(&mut self.payload);
            }
        }
    )*};
}

detach_payload!(SendRequest, BatchMessage, Envelope);

impl<T: Detach> Detach for [T] {
    fn detach(&mut self) {
        self.iter_mut().for_each(T::detach);
    }
}

impl<T: Detach> Detach for Option<T> {
    fn detach(&mut self) {
        self.iter_mut().for_each(T::detach);
    }
}

impl Detach for v1::SendBatchRequest {
    fn detach(&mut self) {
        self.messages.detach();
    }
}

impl Detach for v1::RecvResponse {
    fn detach(&mut self) {
        self.messages.detach();
    }
}

impl Detach for v1::RecvStreamResponse {
    fn detach(&mut self) {
        self.envelope.detach();
    }
}

impl Detach for v1::Record {
    fn detach(&mut self) {
        self.envelope.detach();
    }
}

impl Detach for v1::Records {
    fn detach(&mut self) {
        self.messages.detach();
    }
}

impl Detach for v1::Request {
    fn detach(&mut self) {
        match &mut self.call {
            Some(Call::Send(it)) => it.detach(),
            Some(Call::SendBatch(it)) => it.detach(),
            _ => {}
        }
    }
}

impl Detach for v1::Reply {
    fn detach(&mut self) {
        use super::v1::reply::Answer;

        match &mut self.answer {
            Some(Answer::Received(it)) => it.detach(),
            Some(Answer::Records(it)) => it.detach(),
            Some(Answer::Record(it)) => it.detach(),
            _ => {}
        }
    }
}

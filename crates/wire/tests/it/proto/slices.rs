//! Payloads are not copied while a message is read, and are when they are to be kept.

use bytes::Bytes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::proto::{Asked, Detach, read_reply, read_request, v1};
use prost::Message as _;

use super::answers::envelope;
use super::questions::send;

const COUNT: usize = 3;

/// A batch with an empty payload in it.
fn batch() -> v1::SendBatchRequest {
    let payload = |at: usize| Bytes::from(vec![b'p'; at * 100]);
    let message = |at| v1::BatchMessage { payload: payload(at), ..v1::BatchMessage::default() };
    v1::SendBatchRequest { topic: None, messages: (0..COUNT).map(message).collect() }
}

fn is_within(payload: &Bytes, frame: &Bytes) -> bool {
    let start = frame.as_ptr() as usize;
    (start..start + frame.len()).contains(&(payload.as_ptr() as usize))
}

#[test]
fn payloads_are_slices_of_what_was_read_until_they_are_detached() {
    let frame = Bytes::from(batch().encode_to_vec());
    let mut read = v1::SendBatchRequest::decode(frame.clone()).unwrap();
    assert_eq!(read, batch());
    for message in &read.messages[1..] {
        assert!(is_within(&message.payload, &frame));
    }
    assert!(!frame.is_unique(), "slices keep it alive");
    read.detach();
    assert_eq!(read, batch(), "the same, elsewhere");
    for message in &read.messages {
        assert!(!is_within(&message.payload, &frame));
    }
    assert!(frame.is_unique(), "nobody keeps it alive any more");
}

#[test]
fn whatever_has_payloads_can_be_detached() {
    fn payloads<M>(message: M, payloads: fn(&M) -> Vec<&Bytes>)
    where
        M: prost::Message + Default + Detach + PartialEq + std::fmt::Debug,
    {
        let frame = Bytes::from(message.encode_to_vec());
        let mut read = M::decode(frame.clone()).unwrap();
        assert!(!payloads(&read).is_empty());
        assert!(payloads(&read).iter().all(|payload| is_within(payload, &frame)));
        read.detach();
        assert!(payloads(&read).iter().all(|payload| !is_within(payload, &frame)));
        assert_eq!(read, message);
    }
    let record = || v1::Record { envelope: Some(envelope().into()), ..v1::Record::default() };
    let received = || v1::RecvResponse { messages: vec![envelope().into(); COUNT] };
    payloads(v1::SendRequest::from(send()), |it| vec![&it.payload]);
    payloads(v1::Envelope::from(envelope()), |it| vec![&it.payload]);
    payloads(v1::RecvStreamResponse::from(Some(envelope())), |it| of(it.envelope.as_ref()));
    payloads(received(), |it| of(&it.messages));
    payloads(record(), |it| of(it.envelope.as_ref()));
    payloads(v1::Records { messages: vec![record(); COUNT] }, |it| {
        of(it.messages.iter().filter_map(|it| it.envelope.as_ref()))
    });
}

fn of<'a>(envelopes: impl IntoIterator<Item = &'a v1::Envelope>) -> Vec<&'a Bytes> {
    envelopes.into_iter().map(|it| &it.payload).collect()
}

#[test]
fn frames_are_let_go_once_they_are_read() {
    let call = v1::request::Call::SendBatch(batch());
    let frame = Bytes::from(v1::Request { call: Some(call) }.encode_to_vec());
    let asked = read_request(frame.clone()).unwrap();
    assert!(frame.is_unique());
    let Asked::Call(Request::SendBatch(read)) = asked else { panic!("a batch") };
    assert_eq!(v1::SendBatchRequest::from(read), batch());

    let mut frame = Vec::new();
    mailbox_wire::proto::write_received(vec![envelope(); COUNT], &mut frame);
    let frame = Bytes::from(frame);
    let reply = read_reply(frame.clone()).unwrap();
    assert!(frame.is_unique());
    let Reply::Received(received) = reply else { panic!("messages") };
    assert_eq!(received.messages, vec![envelope(); COUNT]);
}

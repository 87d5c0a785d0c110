//! Messages as gRPC reads and writes them.

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mailbox_wire::bounds::{ATTRIBUTES, TEXTS};
use mailbox_wire::proto::{Codec, Counted, MAX_FIELDS, Unreadable, v1};
use tonic::codec::{Codec as _, EncodeBody, Streaming};
use tonic::codegen::tokio_stream;
use tonic::{Code, Status};

/// What is read of what was written, where everything is there already.
fn sent<T, U>(message: T) -> Result<Option<U>, Status>
where
    T: prost::Message + 'static,
    U: prost::Message + Default + Counted + 'static,
{
    let source = tokio_stream::once(Ok(message));
    let writer = Codec::<T, U>::default().encoder();
    let reader = Codec::<T, U>::default().decoder();
    let body = EncodeBody::new_client(writer, source, None, None);
    let mut stream = Streaming::new_request(reader, body, None, None);
    let mut message = pin!(stream.message());
    match message.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => read,
        Poll::Pending => panic!("everything is there"),
    }
}

fn batch(count: usize) -> v1::SendBatchRequest {
    let messages =
        vec![v1::BatchMessage { payload: vec![7; 500].into(), ..Default::default() }; count];
    v1::SendBatchRequest { topic: None, messages }
}

#[test]
fn what_is_written_is_read() {
    for count in [0, 1, 256, MAX_FIELDS] {
        assert_eq!(sent(batch(count)).unwrap(), Some(batch(count)));
    }
}

#[test]
fn too_many_fields_and_what_is_no_message_are_the_callers_mistake() {
    let refused = |read: Result<Option<v1::SendBatchRequest>, Status>| {
        let status = read.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        // So that a client can tell what it could not read from what it was told.
        assert!(status.source().is_some_and(|source| source.is::<Unreadable>()));
        status.message().to_owned()
    };
    assert_eq!(refused(sent(batch(MAX_FIELDS + 1))), "more fields than any message needs");
    // A string that is no text: field 1 of one is field 1 of the other.
    let garbage = refused(sent(v1::Cancel { corr_id: 7 }));
    assert!(garbage.contains("SendBatchRequest.topic"), "{garbage}");
}

#[test]
fn lists_in_messages_in_messages_have_an_end() {
    let ids = |count| {
        let msg_ids = Some(v1::MessageIds { msg_ids: vec![String::new(); count] });
        v1::ReprocessRequest { msg_ids, ..v1::ReprocessRequest::default() }
    };
    assert_eq!(sent(ids(TEXTS)).unwrap(), Some(ids(TEXTS)));
    let many = sent::<_, v1::ReprocessRequest>(ids(TEXTS + 1)).unwrap_err();
    assert_eq!(many.message(), "more fields than any message needs");
    let send = |count| {
        let attrs = (0..count).map(|key: usize| (key.to_string(), String::new())).collect();
        v1::SendRequest { attrs, ..v1::SendRequest::default() }
    };
    assert_eq!(sent(send(ATTRIBUTES)).unwrap(), Some(send(ATTRIBUTES)));
    let many = sent::<_, v1::SendRequest>(send(ATTRIBUTES + 1)).unwrap_err();
    assert_eq!(many.code(), Code::InvalidArgument);
}

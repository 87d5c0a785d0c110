//! What is in the frames of OAP/1, app protocol 0x0202.

use bytes::Bytes;
use prost::Message;

use super::{Asked, Counted, Detach, Unreadable, v1};
use crate::{call, json};

/// Reads what a client asks. Payloads are detached, see [`Detach`].
///
/// # Errors
/// If it is no request; nothing that is in it is in the error.
pub fn read_request(bytes: Bytes) -> Result<Asked, Unreadable> {
    v1::Request::check(&bytes)?;
    let mut request = v1::Request::decode(bytes)?;
    request.detach();
    Ok(request.try_into()?)
}

/// Writes what a client asks.
#[must_use]
pub fn write_request(asked: Asked) -> Vec<u8> {
    v1::Request::from(asked).encode_to_vec()
}

/// Reads what a service answers. Payloads are detached, see [`Detach`].
///
/// # Errors
/// If it is no answer; nothing that is in it is in the error.
pub fn read_reply(bytes: Bytes) -> Result<call::Reply, Unreadable> {
    v1::Reply::check(&bytes)?;
    let mut reply = v1::Reply::decode(bytes)?;
    reply.detach();
    Ok(reply.try_into()?)
}

/// Adds what a service answers.
pub fn write_reply(reply: call::Reply, out: &mut Vec<u8>) {
    append(&v1::Reply::from(reply), out);
}

/// Adds the answer to a receive, which is a [`Reply`](v1::Reply) like every other.
pub fn write_received(messages: Vec<json::Envelope>, out: &mut Vec<u8>) {
    write_reply(call::Reply::Received(json::Received { messages }), out);
}

fn append(message: &impl Message, out: &mut Vec<u8>) {
    // Room for all of it at once: what is copied when it grows would not be wiped.
    out.reserve(message.encoded_len());
    message.encode_raw(out);
}

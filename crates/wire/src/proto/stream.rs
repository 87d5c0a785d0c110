//! Streamed receives in OAP/1: envelopes one after the other, each behind its length. A length of
//! nothing is a sign of life; no envelope is that short.

use bytes::BytesMut;
use prost::Message;

use super::{Counted, Detach, Unreadable, v1};
use crate::json;

/// One thing of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Streamed {
    /// A message.
    Envelope(Box<json::Envelope>),
    /// Nothing has come, and the service is still there.
    SignOfLife,
}

/// Longest spelling of a length of 32 bits.
const LEN_LEN: usize = 5;

/// Adds a message to a stream.
pub fn write_streamed(envelope: json::Envelope, out: &mut Vec<u8>) {
    let envelope = v1::Envelope::from(envelope);
    let len = envelope.encoded_len();
    // Room for all of it at once: what is copied when it grows would not be wiped.
    out.reserve(prost::length_delimiter_len(len) + len);
    prost::encoding::encode_varint(len as u64, out);
    envelope.encode_raw(out);
}

/// Adds a sign of life to a stream.
pub fn write_sign_of_life(out: &mut Vec<u8>) {
    out.push(0);
}

/// Takes the next thing off the beginning of what has come of a stream; nothing if not all of it
/// has come yet. Payloads are detached, see [`Detach`].
///
/// # Errors
/// If it is no envelope, or longer than `max_len`. The stream cannot be read on then.
pub fn read_streamed(
    buffer: &mut BytesMut,
    max_len: usize,
) -> Result<Option<Streamed>, Unreadable> {
    let spelling = buffer.iter().take(LEN_LEN).position(|byte| *byte < 0x80);
    let Some(last) = spelling else {
        return if buffer.len() < LEN_LEN { Ok(None) } else { Err(Unreadable::TooLong) };
    };
    let len = prost::decode_length_delimiter(&buffer[..=last])?;
    if len > max_len {
        return Err(Unreadable::TooLong);
    }
    if buffer.len() - last - 1 < len {
        return Ok(None);
    }
    let envelope = buffer.split_to(last + 1 + len).split_off(last + 1);
    if envelope.is_empty() {
        return Ok(Some(Streamed::SignOfLife));
    }
    v1::Envelope::check(&envelope)?;
    let mut envelope = v1::Envelope::decode(envelope.freeze())?;
    envelope.detach();
    Ok(Some(Streamed::Envelope(Box::new(envelope.try_into()?))))
}

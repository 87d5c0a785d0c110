//! What stands before a message: whether it is compressed, and how long it is. The library would
//! call everything that is wrong with it a defect of the service.

use http::HeaderMap;
use mailbox::{Error, ErrorKind};

use super::refusal::no_encoding;
use crate::failure::{Answer, Failure};

/// What stands before a message.
pub(super) const PREFIX: usize = 5;

/// Whether messages come as they are.
pub(super) fn check_encoding(headers: &HeaderMap) -> Answer<()> {
    match headers.get("grpc-encoding") {
        Some(encoding) if encoding != "identity" => Err(no_encoding()),
        _ => Ok(()),
    }
}

/// Whether a body is one message of no more than so many bytes.
pub(super) fn check_message(body: &[u8], most: usize) -> Answer<()> {
    let invalid = |message: &str| Err(Failure::new(ErrorKind::InvalidParameter, message));
    if body.is_empty() {
        return invalid("there is no message");
    }
    let Some((&[flag, ref len @ ..], message)) = body.split_first_chunk::<PREFIX>() else {
        return invalid("the message breaks off");
    };
    match flag {
        0 => {}
        1 => return invalid("the message is marked as compressed, but no grpc-encoding is given"),
        _ => return invalid("what stands before the message is not what gRPC wants"),
    }
    let len = u32::from_be_bytes(*len) as usize;
    if len > most {
        return Err(too_large(most).into());
    }
    match message.len() {
        there if there < len => invalid("the message breaks off"),
        there if there > len => invalid("there is more than one message"),
        _ => Ok(()),
    }
}

/// The message is larger than so many bytes.
pub(super) fn too_large(most: usize) -> Error {
    let message = format!("the message is larger than {most} bytes");
    Error::new(ErrorKind::TooLarge, message).with_field("payload")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_message_or_it_is_said_why_not() {
        let kind = |body: &[u8]| check_message(body, 8).map_err(|failure| failure.error.kind());
        assert_eq!(kind(b"\0\0\0\0\0"), Ok(()));
        assert_eq!(kind(b"\0\0\0\0\x03abc"), Ok(()));
        for body in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x03abcd",
            b"\x01\0\0\0\x03abc",
            b"\x02\0\0\0\x03abc",
        ] {
            assert_eq!(kind(body), Err(ErrorKind::InvalidParameter), "{body:?}");
        }
        assert_eq!(kind(b"\0\0\0\0\x09ab"), Err(ErrorKind::TooLarge));
    }
}

//! How many fields a message may have. Invariant: what is read takes a bounded amount of memory.
//!
//! An empty message in a list is two bytes on the wire and some hundred in memory, so a few
//! megabytes could become a gigabyte before anybody counts the list. So fields are counted first;
//! that skips from one to the next and costs next to nothing.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::Unreadable;

/// Most fields of a message, each element of a list counted; far more than any has.
pub const MAX_FIELDS: usize = 4096;

/// Whether a message has no more fields than it may. Whether it is one at all is not asked: what
/// is read stops where this stops.
pub(super) fn check(message: &[u8]) -> Result<(), Unreadable> {
    count(message, false, &mut MAX_FIELDS.clone())
}

/// The same for a message that is nothing but a choice of messages: the fields of those count.
pub(super) fn check_choice(message: &[u8]) -> Result<(), Unreadable> {
    count(message, true, &mut MAX_FIELDS.clone())
}

fn count(mut message: &[u8], is_choice: bool, left: &mut usize) -> Result<(), Unreadable> {
    while let Ok((tag, wire_type)) = decode_key(&mut message) {
        *left = left.checked_sub(1).ok_or(Unreadable::TooManyFields)?;
        if is_choice && wire_type == WireType::LengthDelimited {
            let Some((chosen, rest)) = split(message) else { return Ok(()) };
            count(chosen, false, left)?;
            message = rest;
        } else if skip_field(wire_type, tag, &mut message, DecodeContext::default()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// What has its length before it, and what follows.
fn split(mut message: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = decode_varint(&mut message).ok()?;
    message.split_at_checked(usize::try_from(len).ok()?)
}

//! How many elements the lists and maps of a message may have. Invariant: what is read takes a
//! bounded amount of memory, see [`bounds`](crate::bounds).
//!
//! An empty message in a list is two bytes on the wire and some hundred in memory, and an empty
//! text is two and two dozen: a few megabytes could become a gigabyte before anybody counts the
//! list. So elements are counted first; that skips from one to the next and costs next to
//! nothing. Where lists are in messages in messages is known from their description, by a table
//! that `build.rs` makes: bytes that are a payload are never looked into. Fields that are no list
//! replace each other, so it does not matter how often they come.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::{Unreadable, v1};
use crate::bounds::{ATTRIBUTES, TEXTS};

/// Most messages in all lists of a message together; far more than any call takes.
pub const MAX_FIELDS: usize = 4096;

/// A message whose lists can be counted before it is read.
pub trait Counted {
    /// Whether its lists are no longer than they may be.
    ///
    /// # Errors
    /// They are, or parts of it are longer than what they are in, which a reader would notice only
    /// when it has read them.
    fn check(message: &[u8]) -> Result<(), Unreadable>;
}

impl<M: Shaped> Counted for M {
    fn check(message: &[u8]) -> Result<(), Unreadable> {
        count(message, M::SHAPE, &mut Left { messages: MAX_FIELDS, texts: TEXTS })
    }
}

/// The fields of a message that are lists or maps, or messages, by their numbers.
pub(super) type Shape = &'static [(u32, Field)];

/// A message of which that is known. Constants are finite: no message can contain itself.
pub(super) trait Shaped {
    const SHAPE: Shape;
}

/// What has to be counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field {
    /// A message.
    One(Shape),
    /// A list of messages.
    Many(Shape),
    /// A list of texts.
    Texts,
    /// A map from text to text.
    Attributes,
}

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// How many may still come, in all of a message.
struct Left {
    messages: usize,
    texts: usize,
}

fn count(mut message: &[u8], shape: Shape, left: &mut Left) -> Result<(), Unreadable> {
    let mut attributes = ATTRIBUTES;
    while !message.is_empty() {
        let (tag, wire_type) = decode_key(&mut message)?;
        let whole = message;
        // An error if it is longer than what it is in.
        skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
        if wire_type != WireType::LengthDelimited {
            continue;
        }
        let inside = match shape.iter().find(|(number, _)| *number == tag) {
            None => continue,
            Some((_, Field::One(inside))) => *inside,
            Some((_, Field::Many(inside))) => {
                take(&mut left.messages)?;
                *inside
            }
            Some((_, Field::Texts)) => {
                take(&mut left.texts)?;
                continue;
            }
            Some((_, Field::Attributes)) => {
                take(&mut attributes)?;
                take(&mut left.texts)?;
                continue;
            }
        };
        if !inside.is_empty() {
            let mut part = &whole[..whole.len() - message.len()];
            decode_varint(&mut part)?;
            count(part, inside, left)?;
        }
    }
    Ok(())
}

fn take(left: &mut usize) -> Result<(), Unreadable> {
    *left = left.checked_sub(1).ok_or(Unreadable::TooManyFields)?;
    Ok(())
}

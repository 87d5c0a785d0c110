//! What can be wrong with a message.

use std::convert::Infallible;
use std::fmt;

use prost::DecodeError;

/// The field of a message that is missing where it has to be there, or is out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled(pub &'static str);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is missing or out of range: see mailbox.proto", self.0)
    }
}

impl std::error::Error for Garbled {}

impl From<Infallible> for Garbled {
    /// So that messages that cannot be garbled are read like those that can.
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq)]
pub enum Unreadable {
    /// They are no protobuf, or that of something else.
    NoProtobuf(DecodeError),
    /// Longer lists than [`MAX_FIELDS`](super::MAX_FIELDS) or [`bounds`](crate::bounds) allow.
    TooManyFields,
    /// Longer than was allowed.
    TooLong,
    /// Protobuf, but a field is missing or out of range.
    Garbled(Garbled),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Names of messages and fields, never what is in them.
            Self::NoProtobuf(error) => fmt::Display::fmt(error, f),
            Self::TooManyFields => f.write_str("more fields than any message needs"),
            Self::TooLong => f.write_str("longer than any message may be"),
            Self::Garbled(garbled) => fmt::Display::fmt(garbled, f),
        }
    }
}

impl std::error::Error for Unreadable {}

impl From<DecodeError> for Unreadable {
    fn from(error: DecodeError) -> Self {
        Self::NoProtobuf(error)
    }
}

impl From<Garbled> for Unreadable {
    fn from(garbled: Garbled) -> Self {
        Self::Garbled(garbled)
    }
}

/// What has to be there.
pub(super) fn needed<T>(field: Option<T>, name: &'static str) -> Result<T, Garbled> {
    field.ok_or(Garbled(name))
}

/// Each of a list, which may be garbled.
pub(super) fn each<T, U>(list: Vec<T>) -> Result<Vec<U>, Garbled>
where
    U: TryFrom<T, Error = Garbled>,
{
    list.into_iter().map(U::try_from).collect()
}

/// Each of a list.
pub(super) fn all<T, U: From<T>>(list: Vec<T>) -> Vec<U> {
    list.into_iter().map(U::from).collect()
}

//! Reading what scripts answer, one value after the other. Invariant: an answer that is not what it
//! has to be is an error, never a panic: a server, or whoever wrote its keys, may say anything.

use redis::Value;

use crate::error::{Error, ErrorKind, Result};

/// The values of an answer that are not read yet.
#[derive(Debug)]
pub(crate) struct Answer(std::vec::IntoIter<Value>);

impl Answer {
    pub(crate) fn new(value: Value) -> Result<Self> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            _ => Err(unexpected("one value instead of several")),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            Some(Value::Int(number)) => Ok(number.to_string().into_bytes()),
            Some(_) => Err(unexpected("a value that is no text")),
            None => Err(unexpected("fewer values")),
        }
    }

    /// Text, with replacements for what is none: only for what is shown and never sent back.
    pub(crate) fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Text behind a `=`; an empty one means none.
    pub(crate) fn optional(&mut self) -> Result<Option<String>> {
        Ok(self.text()?.strip_prefix('=').map(str::to_owned))
    }

    /// A whole number; what is none counts as 0.
    pub(crate) fn number(&mut self) -> Result<u64> {
        Ok(read_number(&self.text()?).unwrap_or(0))
    }

    /// A whole number, if there is one.
    pub(crate) fn maybe_number(&mut self) -> Result<Option<u64>> {
        Ok(read_number(&self.text()?))
    }

    /// A number that may be negative.
    pub(crate) fn signed(&mut self) -> Result<i64> {
        Ok(self.text()?.parse().unwrap_or(0))
    }
}

/// Scores of others may be anything: too large a one is the largest.
fn read_number(text: &str) -> Option<u64> {
    match text {
        "" => None,
        "inf" | "+inf" => Some(u64::MAX),
        text => text
            .parse()
            .ok()
            .or_else(|| text.bytes().all(|b| b.is_ascii_digit()).then_some(u64::MAX)),
    }
}

/// A single whole number.
pub(crate) fn count(value: &Value) -> Result<u64> {
    match value {
        Value::Int(count) => Ok(u64::try_from(*count).unwrap_or(0)),
        _ => Err(unexpected("no number")),
    }
}

pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("redis answered {what}"))
}

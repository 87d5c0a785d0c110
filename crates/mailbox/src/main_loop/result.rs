//! What a loop answers (P3). Plain data that crosses the wire, errors included.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use mailbox_core::limits;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use super::context::BudgetExceeded;
use crate::timestamp::Timestamp;

/// The result of a request.
///
/// As JSON: `{"request_id": "..", "output": .., "completed_at": ".."}` or
/// `{"request_id": "..", "error": {"kind": "..", "message": ".."}, "completed_at": ".."}`, and
/// `session_id` if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MainLoopResult<O> {
    /// The id of the request.
    pub request_id: Uuid,
    /// What came of it.
    pub outcome: Result<O, HandlerFailure>,
    /// What the handler said with [`Context::set_session_id`](super::Context::set_session_id).
    pub session_id: Option<String>,
    /// When it was done.
    pub completed_at: Timestamp,
}

impl<O> MainLoopResult<O> {
    /// The result of `request_id`, completed now.
    #[must_use]
    pub fn new(request_id: Uuid, outcome: Result<O, HandlerFailure>) -> Self {
        Self { request_id, outcome, session_id: None, completed_at: Timestamp::now() }
    }

    /// It belongs to this session.
    #[must_use]
    pub fn with_session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// It was completed then.
    #[must_use]
    pub fn with_completed_at(mut self, completed_at: Timestamp) -> Self {
        self.completed_at = completed_at;
        self
    }
}

/// As it is read. `output` may be null and still be there, for an output that is nothing.
#[derive(Deserialize)]
#[serde(bound(deserialize = "O: Deserialize<'de>"))]
struct Read<O> {
    request_id: Uuid,
    #[serde(default, deserialize_with = "there")]
    output: Option<O>,
    #[serde(default)]
    error: Option<HandlerFailure>,
    #[serde(default)]
    session_id: Option<String>,
    completed_at: Timestamp,
}

fn there<'de, O: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<O>, D::Error> {
    O::deserialize(from).map(Some)
}

#[derive(Serialize)]
struct Written<'a, O> {
    request_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a O>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a HandlerFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    completed_at: Timestamp,
}

impl<O: Serialize> Serialize for MainLoopResult<O> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written {
            request_id: self.request_id,
            output: self.outcome.as_ref().ok(),
            error: self.outcome.as_ref().err(),
            session_id: self.session_id.as_deref(),
            completed_at: self.completed_at,
        }
        .serialize(serializer)
    }
}

impl<'de, O: Deserialize<'de>> Deserialize<'de> for MainLoopResult<O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { request_id, output, error, session_id, completed_at } =
            Read::deserialize(deserializer)?;
        let outcome = match (output, error) {
            (Some(output), None) => Ok(output),
            (None, Some(error)) => Err(error),
            (None, None) => return Err(de::Error::missing_field("output")),
            (Some(_), Some(_)) => return Err(de::Error::custom("both an output and an error")),
        };
        Ok(Self { request_id, outcome, session_id, completed_at })
    }
}

/// Why a request has no output: data, because whoever reads it may be elsewhere.
///
/// It is no `std::error::Error`, so that any error can become one with `?`. What a handler says is
/// sent to its client as it is: keep secrets out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HandlerFailure {
    /// What kind of failure: decide by this.
    pub kind: FailureKind,
    /// For people; at most 8 KiB, the rest is cut off.
    pub message: String,
}

/// What kind of failure; a word on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The handler said so.
    Failed,
    /// The handler panicked.
    Panicked,
    /// The request's deadline passed, before or while it was handled.
    DeadlineExceeded,
    /// The request's budget, of time or of units, was not enough.
    BudgetExceeded,
    /// There was an output, but it could not be sent: too large, or not to be encoded.
    Unsendable,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

impl HandlerFailure {
    /// A failure of `kind`.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: shortened(message.into()) }
    }

    /// What a handler's error says. Failures stay what they are, budgets that were exceeded are
    /// recognised, everything else is [`FailureKind::Failed`].
    pub(crate) fn of<E: fmt::Display + 'static>(error: E) -> Self {
        let any: &dyn Any = &error;
        if let Some(failure) = any.downcast_ref::<Self>() {
            return Self::new(failure.kind, failure.message.clone());
        }
        let exceeded = any.is::<BudgetExceeded>();
        let kind = if exceeded { FailureKind::BudgetExceeded } else { FailureKind::Failed };
        Self::new(kind, error.to_string())
    }

    /// What a panic left behind.
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Self::new(FailureKind::Panicked, format!("the handler panicked: {text}"))
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for HandlerFailure {
    fn from(error: E) -> Self {
        Self::of(error)
    }
}

impl fmt::Display for HandlerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What fits into a nack's error text, so that no message is too long to be passed on.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > limits::ERROR_TEXT_LEN {
        text.truncate(text.floor_char_boundary(limits::ERROR_TEXT_LEN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<O>(outcome: Result<O, HandlerFailure>) -> serde_json::Value
    where
        O: Serialize + de::DeserializeOwned + PartialEq + fmt::Debug,
    {
        let result = MainLoopResult::new(Uuid::now_v7(), outcome).with_session_id("s");
        let json = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<MainLoopResult<O>>(&json).unwrap(), result);
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_result_is_flat_json_with_an_output_or_an_error() {
        assert_eq!(round_trip(Ok(7))["output"], 7);
        assert!(round_trip(Ok(7)).get("error").is_none());
        let json = round_trip::<u8>(Err(HandlerFailure::new(FailureKind::Panicked, "oh")));
        assert_eq!(json["error"], serde_json::json!({"kind": "panicked", "message": "oh"}));
        assert!(json.get("output").is_none());
    }

    #[test]
    fn an_output_that_is_nothing_is_an_output() {
        assert!(round_trip(Ok(()))["output"].is_null());
        assert!(round_trip(Ok(None::<u8>))["output"].is_null());
        let numbered = std::collections::BTreeMap::from([(7_u32, "seven".to_owned())]);
        assert_eq!(round_trip(Ok(numbered))["output"]["7"], "seven");
    }

    #[test]
    fn neither_and_both_are_refused_and_an_unknown_word_is_not() {
        let id = Uuid::now_v7();
        let read = |more: &str| {
            let json = format!(
                r#"{{"request_id":"{id}","completed_at":"2025-10-12T18:02:41.000Z"{more}}}"#
            );
            serde_json::from_str::<MainLoopResult<u8>>(&json)
        };
        assert!(read("").is_err());
        assert!(read(r#","output":1,"error":{"kind":"failed","message":""}"#).is_err());
        let strange = read(r#","error":{"kind":"tired","message":""}"#).unwrap();
        assert_eq!(strange.outcome.unwrap_err().kind, FailureKind::Unknown);
    }

    #[test]
    fn a_failure_keeps_its_kind_and_loses_what_is_too_long() {
        let failure = HandlerFailure::new(FailureKind::BudgetExceeded, "é".repeat(5_000));
        assert_eq!(failure.message.len(), limits::ERROR_TEXT_LEN);
        assert_eq!(HandlerFailure::of(failure.clone()), failure);
        assert_eq!(HandlerFailure::of("no").kind, FailureKind::Failed);
        let exceeded: HandlerFailure = BudgetExceeded::new(3, 2).into();
        assert_eq!(exceeded.kind, FailureKind::BudgetExceeded);
    }
}

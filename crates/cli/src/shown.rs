//! How messages are shown to programs: the JSON of `--json`. Invariant: one object a line, every
//! field but those of the payload always there; a payload that is JSON is shown as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mailbox::{Delivery, Phase, Record, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::output::tamed;

/// Letters of a payload that are shown in a list.
const PREVIEW: usize = 40;

/// A payload: `body` if it is JSON; `payload_b64` if it is not, and `text` if that is text.
#[derive(Debug, Serialize)]
struct Payload<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_b64: Option<String>,
}

impl<'a> Payload<'a> {
    fn of(payload: &'a [u8]) -> Self {
        let text = std::str::from_utf8(payload).ok();
        match text.and_then(json) {
            Some(body) => Self { body: Some(body), text: None, payload_b64: None },
            None => Self { body: None, text, payload_b64: Some(STANDARD.encode(payload)) },
        }
    }
}

/// The value in a text that is JSON, on one line.
fn json(text: &str) -> Option<Box<RawValue>> {
    let read = |text: &str| RawValue::from_string(text.to_owned()).ok();
    let value = read(text.trim_matches([' ', '\t', '\n', '\r']))?;
    if !value.get().contains(['\n', '\r']) {
        return Some(value);
    }
    // In JSON a newline is never inside a string: it may as well be a space.
    read(&value.get().replace(['\n', '\r'], " "))
}

/// A delivery, as `receive --json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Delivered<'a> {
    id: String,
    #[serde(flatten)]
    payload: Payload<'a>,
    receipt_handle: String,
    delivery_count: u32,
    enqueued_at: Timestamp,
    attributes: &'a BTreeMap<String, String>,
    reply_to: Option<&'a str>,
    key: Option<&'a str>,
    group: Option<&'a str>,
}

impl<'a> Delivered<'a> {
    pub(crate) fn new(delivery: &'a Delivery) -> Self {
        let letter = &delivery.letter;
        Self {
            id: delivery.id.to_string(),
            payload: Payload::of(&letter.payload),
            receipt_handle: delivery.receipt_handle.to_string(),
            delivery_count: delivery.delivery_count,
            enqueued_at: letter.enqueued_at,
            attributes: &letter.attributes,
            reply_to: letter.reply_to.as_deref(),
            key: letter.idempotency_key.as_deref(),
            group: letter.group.as_deref(),
        }
    }
}

/// A message that was not received, as `peek --json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Seen<'a> {
    id: String,
    state: &'static str,
    #[serde(flatten)]
    payload: Payload<'a>,
    delivery_count: u32,
    enqueued_at: Timestamp,
    receivable_in_ms: u64,
    attributes: &'a BTreeMap<String, String>,
    reply_to: Option<&'a str>,
    key: Option<&'a str>,
    group: Option<&'a str>,
    last_error: Option<&'a str>,
    death: Option<Death>,
}

#[derive(Debug, Serialize)]
struct Death {
    reason: &'static str,
    at: Timestamp,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(record: &'a Record) -> Self {
        let letter = &record.letter;
        Self {
            id: record.id.to_string(),
            state: state(record.phase),
            payload: Payload::of(&letter.payload),
            delivery_count: record.delivery_count,
            enqueued_at: letter.enqueued_at,
            receivable_in_ms: u64::try_from(record.receivable_in.as_millis()).unwrap_or(u64::MAX),
            attributes: &letter.attributes,
            reply_to: letter.reply_to.as_deref(),
            key: letter.idempotency_key.as_deref(),
            group: letter.group.as_deref(),
            last_error: record.last_error.as_deref(),
            death: record.death.map(|it| Death { reason: it.reason.as_str(), at: it.at }),
        }
    }
}

/// The contract's word for where a message is in its life.
pub(crate) const fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::Delayed => "delayed",
        Phase::Ready => "ready",
        Phase::Invisible => "invisible",
        Phase::Dead => "dead",
    }
}

/// So many of something: `1 byte`, `2 bytes`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A time in a form that people like: `3 s`, `2 min 5 s`, `1 h 10 min`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 => format!("{} ms", time.as_millis()),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// The start of a payload, if it is text.
pub(crate) fn preview(payload: &[u8]) -> String {
    let start = &payload[..payload.len().min(4 * PREVIEW)];
    // A letter may be cut in half at the end.
    let is_text = std::str::from_utf8(start)
        .map_or_else(|error| error.error_len().is_none() && start.len() < payload.len(), |_| true);
    if is_text { tamed(&String::from_utf8_lossy(start), PREVIEW) } else { "(not text)".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(payload: &[u8]) -> String {
        serde_json::to_string(&Payload::of(payload)).unwrap()
    }

    #[test]
    fn json_is_shown_as_it_is_and_stays_on_one_line() {
        assert_eq!(shown(b"{\"a\": 1.00}"), "{\"body\":{\"a\": 1.00}}");
        assert_eq!(shown(b" [1,\r\n 2]\n"), "{\"body\":[1,   2]}");
        assert_eq!(shown(b"\"a\\nb\""), "{\"body\":\"a\\nb\"}");
        assert_eq!(shown(b"12345678901234567890123"), "{\"body\":12345678901234567890123}");
    }

    #[test]
    fn what_is_not_json_is_shown_in_base64_and_as_text_if_it_is_text() {
        assert_eq!(shown(b"hello"), "{\"text\":\"hello\",\"payload_b64\":\"aGVsbG8=\"}");
        assert_eq!(shown(&[0, 0xFF]), "{\"payload_b64\":\"AP8=\"}");
        assert_eq!(shown(b""), "{\"text\":\"\",\"payload_b64\":\"\"}");
        let shown = shown(b"\"a\nb\"");
        assert_eq!(shown, "{\"text\":\"\\\"a\\nb\\\"\",\"payload_b64\":\"ImEKYiI=\"}");
    }

    #[test]
    fn times_are_short() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (59_999, "59 s"),
            (125_000, "2 min 5 s"),
            (4_200_000, "1 h 10 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_preview_is_text_or_says_that_it_is_none() {
        assert_eq!(preview(b"a\nb"), "a b");
        assert_eq!(preview(&[0xFF, 0]), "(not text)");
        assert_eq!(preview("ä".repeat(200).as_bytes()), format!("{}…", "ä".repeat(40)));
        assert_eq!(preview(format!("x{}", "ä".repeat(200)).as_bytes()).chars().count(), 41);
        assert_eq!(preview("ä".as_bytes().split_at(1).0), "(not text)");
    }
}

//! What is kept beside a payload, and whether what comes back is what was sent. Messages of others
//! have nothing beside them; what they say of themselves is believed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::backend::{Letter, Outgoing};
use crate::timestamp::Timestamp;

/// What is written as JSON behind the time of entering.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Beside {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

/// What to keep beside a message.
pub(crate) fn beside(message: &Outgoing) -> String {
    let beside = Beside {
        attributes: message.attributes.clone(),
        key: message.idempotency_key.clone(),
        group: message.group.clone(),
        hash: Some(hash(&message.payload)),
    };
    serde_json::to_string(&beside).expect("text and maps of text are JSON")
}

/// What a payload is recognised by. All of the hash: a server searches a short hash table from the
/// beginning to the end, unless one of its values has more than 64 bytes.
pub(crate) fn hash(payload: &[u8]) -> String {
    blake3::hash(payload).to_hex().to_string()
}

/// A message as a server gives it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) payload: Bytes,
    pub(crate) enqueued: String,
    pub(crate) reply_to: Option<String>,
    /// Time of entering, a semicolon, JSON; empty for messages of others.
    pub(crate) beside: Vec<u8>,
}

impl Kept {
    /// The letter, or a blank one and what is wrong with it. `now` is for a time of sending that
    /// nobody can read.
    pub(crate) fn open(self, now: Timestamp) -> (Arc<Letter>, Option<String>) {
        let (beside, damage) = match read_beside(&self.beside) {
            Ok(beside) => (beside, None),
            Err(why) => (Beside::default(), Some(why)),
        };
        let damage = damage.or_else(|| {
            let kept = beside.hash.as_ref()?;
            (*kept != hash(&self.payload)).then(|| "the payload is not what was sent".to_owned())
        });
        let letter = Letter {
            payload: self.payload,
            attributes: beside.attributes,
            reply_to: self.reply_to,
            idempotency_key: beside.key,
            group: beside.group,
            enqueued_at: self.enqueued.parse().unwrap_or(now),
        };
        (Arc::new(letter), damage)
    }
}

fn read_beside(beside: &[u8]) -> Result<Beside, String> {
    if beside.is_empty() {
        return Ok(Beside::default());
    }
    let start = beside.iter().position(|byte| *byte == b';').map_or(0, |at| at + 1);
    let damaged =
        |error: &dyn fmt::Display| format!("what was kept beside the payload is damaged: {error}");
    // A list of the same values would be read too.
    if beside.get(start) != Some(&b'{') {
        return Err(damaged(&"it is no JSON object"));
    }
    serde_json::from_slice(&beside[start..]).map_err(|error| damaged(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(payload: &'static str, beside: &str) -> Kept {
        let payload = Bytes::from_static(payload.as_bytes());
        let (enqueued, reply_to) = ("2025-01-31T12:00:00.5+01:00".to_owned(), None);
        Kept { payload, enqueued, reply_to, beside: beside.as_bytes().to_vec() }
    }

    #[test]
    fn a_message_comes_back_as_it_was_sent_and_a_changed_one_is_noticed() {
        let mut message = Outgoing::new(Bytes::from_static(b"{}"));
        message.attributes.insert("k".into(), "v".into());
        message.group = Some("g".into());
        let beside = format!("17;{}", beside(&message));
        let now = Timestamp::from_unix_millis(0);
        let (letter, damage) = kept("{}", &beside).open(now);
        assert_eq!((damage, letter.group.as_deref()), (None, Some("g")));
        assert_eq!(letter.attributes, message.attributes);
        assert_eq!(letter.enqueued_at.to_string(), "2025-01-31T11:00:00.500Z");
        assert!(kept("{ }", &beside).open(now).1.is_some());
    }

    #[test]
    fn a_message_of_others_is_believed_and_a_damaged_one_is_not() {
        let now = Timestamp::from_unix_millis(0);
        assert_eq!(kept("NaN", "").open(now).1, None);
        for beside in ["17;", "17;[]", "17;{\"attributes\":3}", "\0"] {
            assert!(kept("{}", beside).open(now).1.is_some(), "{beside}");
        }
        let mut old = kept("{}", "");
        old.enqueued = "yesterday".into();
        assert_eq!(old.open(now).0.enqueued_at, now);
    }
}

//! What is in a message file: the JSON object of plain shells, and one further field of ours.
//! Invariant: what was written is read back byte for byte, and everything that does not add up is
//! noticed; what a stranger wrote is read as far as it makes sense.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use mailbox_core::limits;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::backend::{Letter, Outgoing};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::timestamp::Timestamp;

/// The version of our field.
const VERSION: u32 = 1;
/// What begins every hash chain.
const CHAIN: &[u8] = b"ron.mailbox.hash-chain.v1\0";
/// Longest id that is recognised.
const ID_LEN: usize = 256;
/// Bytes of a file beside its payload: attributes, addresses, and how JSON writes them.
const OVERHEAD: u64 = 4 * 1024 * 1024;

/// The largest file whose payload may be within `max_payload`: JSON writes some bytes as six.
pub(crate) fn longest(max_payload: usize) -> u64 {
    (max_payload as u64).saturating_mul(6).saturating_add(OVERHEAD)
}

/// A message file. Fields in the order in which people read them.
#[derive(Serialize)]
struct Written<'a> {
    id: &'a str,
    timestamp: Timestamp,
    sender: &'a str,
    r#type: &'a str,
    content: &'a RawValue,
    attempts: u32,
    mailbox: Envelope<'a>,
}

/// What a plain message does not have.
#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    v: u32,
    #[serde(borrow)]
    topic: Cow<'a, str>,
    encoding: Encoding,
    payload_hash: Cow<'a, str>,
    hash_chain: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
}

/// How the payload stands in `content`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// It is JSON, and stands there as it is.
    Json,
    /// It is text: the value of a JSON string.
    Text,
    /// It is neither.
    Base64,
}

/// A message file as anybody may have written it.
#[derive(Deserialize)]
struct Found<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sender: Option<&'a RawValue>,
    #[serde(borrow, default)]
    r#type: Option<&'a RawValue>,
    #[serde(borrow)]
    content: &'a RawValue,
    #[serde(borrow, default)]
    attempts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mailbox: Option<&'a RawValue>,
}

impl Found<'_> {
    /// When it was sent, if it says so in a form that is understood.
    fn at(&self) -> Option<Timestamp> {
        words(self.timestamp)?.parse().ok()
    }

    /// Deliveries from before; a number, perhaps in quotes.
    fn attempts(&self) -> u32 {
        let raw = self.attempts.map_or("0", RawValue::get);
        raw.trim_matches('"').parse().unwrap_or(0)
    }
}

/// The words of a field: a string, or else the JSON of it. Strangers write what they like.
fn words(field: Option<&RawValue>) -> Option<String> {
    let raw = field?.get();
    match raw {
        "null" => None,
        _ => Some(serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned())),
    }
}

/// Who sends what to whom, besides the message itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Postmark<'a> {
    pub(crate) id: &'a str,
    pub(crate) topic: &'a Name,
    pub(crate) sender: &'a str,
    pub(crate) at: Timestamp,
}

/// A message that was read.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) letter: Letter,
    /// Deliveries that the file itself speaks of, from before it came here.
    pub(crate) attempts: u32,
    /// Why it is not what was sent, if it is not (I4).
    pub(crate) damage: Option<String>,
    /// What a stranger calls it, as JSON; a message of ours has its id in its name.
    pub(crate) own_id: Option<String>,
}

/// The bytes of a message file.
///
/// # Errors
/// `Serialization`, which nothing that passed the limits gives.
pub(crate) fn write(outgoing: &Outgoing, mark: Postmark<'_>) -> Result<Vec<u8>> {
    let (encoding, content) = content_of(&outgoing.payload)?;
    let hash = blake3::hash(&outgoing.payload);
    let key = outgoing.idempotency_key.as_deref();
    let chain = chain(mark.topic.as_str(), mark.at, key, &hash, &outgoing.attributes);
    let r#type = outgoing.attributes.get("type").map_or("message", String::as_str);
    let sender = outgoing.attributes.get("sender").map_or(mark.sender, String::as_str);
    let written = Written {
        id: mark.id,
        timestamp: mark.at,
        sender,
        r#type,
        content: &content,
        attempts: 0,
        mailbox: Envelope {
            v: VERSION,
            topic: mark.topic.as_str().into(),
            encoding,
            payload_hash: shown(&hash).into(),
            hash_chain: shown(&chain).into(),
            attributes: outgoing.attributes.clone(),
            reply_to: outgoing.reply_to.clone(),
            idempotency_key: outgoing.idempotency_key.clone(),
        },
    };
    let mut bytes = Vec::with_capacity(content.get().len() + 1024);
    serde_json::to_writer(&mut bytes, &written).map_err(unwritable)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The payload as a JSON value: people and `jq` see what is in it.
fn content_of(payload: &Bytes) -> Result<(Encoding, Box<RawValue>)> {
    let text = std::str::from_utf8(payload);
    if let Ok(text) = text {
        // A value in JSON has no space around it: what is read back must be what was sent.
        if let Ok(value) = serde_json::from_str::<&RawValue>(text)
            && value.get().len() == text.len()
        {
            return Ok((Encoding::Json, value.to_owned()));
        }
        let value = serde_json::value::to_raw_value(text).map_err(unwritable)?;
        return Ok((Encoding::Text, value));
    }
    let value = serde_json::value::to_raw_value(&BASE64.encode(payload)).map_err(unwritable)?;
    Ok((Encoding::Base64, value))
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Serialization, "a message cannot be written as JSON").with_source(error)
}

/// Reads a message file. `sent` is when it was sent if it does not say so itself.
///
/// # Errors
/// What is wrong with it: it is no message.
pub(crate) fn read(bytes: &[u8], sent: Timestamp) -> std::result::Result<Content, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let found = match serde_json::from_str::<Found<'_>>(text) {
        Ok(found) => found,
        Err(error) => return plain(text, sent, &error),
    };
    match found.mailbox.map(|field| (field, serde_json::from_str::<Envelope<'_>>(field.get()))) {
        Some((_, Ok(envelope))) => ours(&found, envelope, sent),
        // Half of a message of ours, or one of another version, is no stranger's.
        Some((field, Err(error))) if field.get().contains("\"payload_hash\"") => {
            Err(format!("it is no message: {error}"))
        }
        _ => Ok(theirs(&found, sent)),
    }
}

/// A file that is JSON but no message in the agreed form is the payload itself.
fn plain(
    text: &str,
    sent: Timestamp,
    error: &serde_json::Error,
) -> std::result::Result<Content, String> {
    match serde_json::from_str::<&RawValue>(text) {
        // Half of a message of ours is no payload.
        Ok(value) if !value.get().contains("\"payload_hash\"") => {
            let payload = Bytes::copy_from_slice(value.get().as_bytes());
            let letter = bare(payload, sent);
            Ok(Content { letter, attempts: 0, damage: None, own_id: None })
        }
        Ok(_) => Err(format!("it is no message: {error}")),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

/// A message that somebody wrote by hand, or by a script.
fn theirs(found: &Found<'_>, sent: Timestamp) -> Content {
    let payload = Bytes::copy_from_slice(found.content.get().as_bytes());
    let at = found.at().unwrap_or(sent);
    let mut letter = bare(payload, at);
    for (key, field) in [("sender", found.sender), ("type", found.r#type)] {
        if let Some(value) = words(field).filter(|v| v.len() <= limits::ATTRIBUTE_VALUE_LEN) {
            letter.attributes.insert(key.to_owned(), value);
        }
    }
    let own_id = found
        .id
        .map(RawValue::get)
        .filter(|id| !["null", "\"\""].contains(id) && id.len() <= ID_LEN);
    let own_id = own_id.map(str::to_owned);
    Content { letter, attempts: found.attempts(), damage: None, own_id }
}

/// A message of ours: every part of it is checked.
fn ours(
    found: &Found<'_>,
    envelope: Envelope<'_>,
    sent: Timestamp,
) -> std::result::Result<Content, String> {
    if envelope.v != VERSION {
        let known = format!("this program knows version {VERSION}");
        return Err(format!("it has version {}, {known}", envelope.v));
    }
    let payload = payload_of(envelope.encoding, found.content)?;
    let at = found.at();
    let hash = blake3::hash(&payload);
    let key = envelope.idempotency_key.as_deref();
    let chain = chain(&envelope.topic, at.unwrap_or(sent), key, &hash, &envelope.attributes);
    let damage = if shown(&hash) != envelope.payload_hash {
        Some(format!("payload_hash is {}, the payload has {}", envelope.payload_hash, shown(&hash)))
    } else if shown(&chain) != envelope.hash_chain {
        Some("hash_chain does not fit topic, timestamp, key, payload and attributes".to_owned())
    } else {
        None
    };
    let letter = Letter {
        payload,
        attributes: envelope.attributes,
        reply_to: envelope.reply_to,
        idempotency_key: envelope.idempotency_key,
        group: None,
        enqueued_at: at.unwrap_or(sent),
    };
    Ok(Content { letter, attempts: found.attempts(), damage, own_id: None })
}

fn payload_of(encoding: Encoding, content: &RawValue) -> std::result::Result<Bytes, String> {
    let string = || {
        let string: std::result::Result<String, _> = serde_json::from_str(content.get());
        string.map_err(|error| format!("its content is no string: {error}"))
    };
    Ok(match encoding {
        Encoding::Json => Bytes::copy_from_slice(content.get().as_bytes()),
        Encoding::Text => Bytes::from(string()?.into_bytes()),
        Encoding::Base64 => {
            let bytes = BASE64.decode(string()?);
            Bytes::from(bytes.map_err(|error| format!("its content is no base64: {error}"))?)
        }
    })
}

fn bare(payload: Bytes, enqueued_at: Timestamp) -> Letter {
    Letter {
        payload,
        attributes: BTreeMap::new(),
        reply_to: None,
        idempotency_key: None,
        group: None,
        enqueued_at,
    }
}

fn shown(hash: &blake3::Hash) -> String {
    format!("b3:{}", hash.to_hex())
}

/// One hash over everything that a sender says, so that no part can be changed alone.
fn chain(
    topic: &str,
    at: Timestamp,
    key: Option<&str>,
    payload: &blake3::Hash,
    attributes: &BTreeMap<String, String>,
) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(CHAIN);
    let mut part = |bytes: &[u8]| {
        hasher.update(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        hasher.update(bytes);
    };
    part(topic.as_bytes());
    part(at.to_string().as_bytes());
    part(key.unwrap_or_default().as_bytes());
    part(payload.as_bytes());
    let mut all = Vec::new();
    for text in attributes.iter().flat_map(|(key, value)| [key, value]) {
        all.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        all.extend(text.as_bytes());
    }
    part(&all);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: i64 = 1_760_292_161_000;

    fn sent() -> Timestamp {
        Timestamp::from_unix_millis(AT)
    }

    fn outgoing(payload: &[u8]) -> Outgoing {
        let mut outgoing = Outgoing::new(Bytes::copy_from_slice(payload));
        outgoing.attributes.insert("content-type".to_owned(), "text/plain".to_owned());
        outgoing.reply_to = Some("answers".to_owned());
        outgoing.idempotency_key = Some("demo-1".to_owned());
        outgoing
    }

    fn written(payload: &[u8]) -> String {
        let topic = Name::parse("user:42:inbox").unwrap();
        let mark = Postmark { id: "01X", topic: &topic, sender: "me", at: sent() };
        String::from_utf8(write(&outgoing(payload), mark).unwrap()).unwrap()
    }

    #[test]
    fn every_payload_is_read_back_as_it_was() {
        let deep = "[".repeat(500) + &"]".repeat(500);
        let payloads: [&[u8]; 10] = [
            b"",
            b"hello",
            b"{\"a\": 1}",
            b" {\"a\":1}",
            b"\"text\"",
            b"\xff\x00",
            b"1\n",
            b"null",
            b"{\"a\":1}{",
            deep.as_bytes(),
        ];
        for payload in payloads {
            let content = read(written(payload).as_bytes(), Timestamp::now()).unwrap();
            assert_eq!(content.letter.payload, payload);
            assert_eq!((content.damage, content.attempts), (None, 0));
            assert_eq!(content.letter.enqueued_at, sent());
            assert_eq!(content.letter.reply_to.as_deref(), Some("answers"));
        }
        assert!(written(b"{\"a\": 1}").contains("\"content\":{\"a\": 1}"));
    }

    #[test]
    fn hashes_are_those_of_the_wire_format() {
        let text = written(b"Hi");
        let hash = "b3:714bcf6b6c94fcc1059eec24ca94083da1caa75326ea1c0a4a5e82b1c146f688";
        let chain = "b3:721dc98e1260a2367080d0e263c408fa8f4c17af704cb5d9cfc36f118a9ef1a5";
        assert!(text.contains(hash) && text.contains(chain), "{text}");
    }

    #[test]
    fn a_change_in_any_part_is_noticed() {
        let text = written(b"Hi");
        for (from, to) in [
            ("\"Hi\"", "\"Ho\""),
            ("18:02:41", "18:02:42"),
            ("text/plain", "text/html"),
            ("demo-1", "demo-2"),
            ("user:42", "user:43"),
        ] {
            assert!(text.contains(from), "{text}");
            let content = read(text.replacen(from, to, 1).as_bytes(), sent()).unwrap();
            assert!(content.damage.is_some(), "{from} became {to}");
        }
    }

    #[test]
    fn a_message_of_a_shell_is_read() {
        let text = r#"{"id":"x","timestamp":"2025-12-07T19:30:00Z","sender":"agent1",
            "type":"result","content":"done","attempts":2}"#;
        let content = read(text.as_bytes(), sent()).unwrap();
        assert_eq!(content.letter.payload, "\"done\"");
        assert_eq!(content.attempts, 2);
        assert_eq!(content.letter.attributes["sender"], "agent1");
        assert_eq!(content.letter.enqueued_at.to_string(), "2025-12-07T19:30:00.000Z");
        for other in ["[1,2]", "\"x\"", "{\"any\":\"thing\"}"] {
            assert_eq!(read(other.as_bytes(), sent()).unwrap().letter.payload, other);
        }
        let odd = r#"{"id":7,"timestamp":1765135800,"sender":["a"],"type":null,"content":1,
            "attempts":"2","mailbox":"x"}"#;
        let content = read(odd.as_bytes(), sent()).unwrap();
        assert_eq!((&content.letter.payload[..], content.attempts), (&b"1"[..], 2));
        assert_eq!(content.letter.attributes["sender"], r#"["a"]"#);
        assert_eq!(content.letter.enqueued_at, sent());
        assert_eq!(content.own_id.as_deref(), Some("7"));
    }

    #[test]
    fn what_is_no_message_says_why() {
        let half = &written(b"Hi")[..100];
        let other_version = written(b"Hi").replace("\"v\":1", "\"v\":2");
        let broken = written(b"Hi").replace("\"topic\"", "\"subject\"");
        for (bytes, why) in [
            (&b""[..], "not JSON"),
            (b"hello", "not JSON"),
            (b"\xff", "not UTF-8"),
            (half.as_bytes(), "not JSON"),
            (other_version.as_bytes(), "version 2"),
            (broken.as_bytes(), "no message"),
        ] {
            let error = read(bytes, sent()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}

//! Answers in JSON: as over HTTP, but a payload that is text is there as text.

use serde::Serialize;

use crate::call::Reply;
use crate::json::{Death, Envelope, Record};

/// Adds an answer.
pub fn write(reply: Reply, out: &mut Vec<u8>) {
    // Room for all of it at once: what is copied when it grows would not be wiped.
    match reply {
        Reply::Received(received) => {
            out.reserve(received.messages.iter().map(room_for).sum());
            write_list(received.messages, out, write_envelope);
        }
        Reply::Records(records) => {
            out.reserve(records.messages.iter().map(|it| room_for(&it.envelope)).sum());
            write_list(records.messages, out, write_record);
        }
        Reply::Record(record) => write_record(*record, out),
        other => write_json(&other, out),
    }
}

/// Adds a message, as it is in an answer or in a stream.
pub fn write_envelope(mut envelope: Envelope, out: &mut Vec<u8>) {
    /// How an envelope without a payload ends.
    const NO_PAYLOAD: &[u8] = b"\"payload_b64\":\"\"}";

    out.reserve(room_for(&envelope));
    let payload = std::mem::take(&mut envelope.payload_b64);
    let text = std::str::from_utf8(&payload.0).ok().filter(|it| is_short(it.as_bytes()));
    let Some(text) = text else {
        envelope.payload_b64 = payload;
        return envelope.append_json(out);
    };
    write_json(&envelope, out);
    debug_assert!(out.ends_with(NO_PAYLOAD), "the payload is last");
    out.truncate(out.len() - NO_PAYLOAD.len());
    out.extend_from_slice(b"\"text\":");
    write_json(text, out);
    out.push(b'}');
}

/// About as long as a message is, rather more than less.
fn room_for(envelope: &Envelope) -> usize {
    envelope.json_len() + SHORT
}

/// So much longer than in base64 a payload may be as text.
const SHORT: usize = 64;

/// Whether text is about as short as it would be in base64. What has to be escaped is up to six
/// times as long, and nobody has counted with that who made room for an answer.
fn is_short(text: &[u8]) -> bool {
    let added = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 1,
        0..b' ' => 5,
        _ => 0,
    };
    text.iter().map(added).sum::<usize>() <= text.len() / 3 + SHORT
}

fn write_record(record: Record, out: &mut Vec<u8>) {
    /// What is said beside the message.
    #[derive(Serialize)]
    struct Beside {
        state: String,
        receivable_in_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_error: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        death: Option<Death>,
    }

    let Record { envelope, state, receivable_in_ms, last_error, death } = record;
    write_envelope(envelope, out);
    // The two objects become one.
    out.pop();
    let seam = out.len();
    write_json(&Beside { state, receivable_in_ms, last_error, death }, out);
    out[seam] = b',';
}

/// Adds messages in their order.
fn write_list<T>(messages: Vec<T>, out: &mut Vec<u8>, write: fn(T, &mut Vec<u8>)) {
    out.extend_from_slice(b"{\"messages\":[");
    for (place, message) in messages.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write(message, out);
    }
    out.extend_from_slice(b"]}");
}

fn write_json<T: Serialize + ?Sized>(it: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, it).expect("text and numbers can be written");
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::hash::Hash;
    use crate::json::{Ok as Done, Received, Records, Sent, Topics};
    use crate::payload::Payload;

    fn envelope(payload: &[u8]) -> Envelope {
        let hash = Hash::of_payload(b"x");
        Envelope {
            msg_id: "01".to_owned(),
            topic: "jobs".to_owned(),
            ts: "2025-10-12T18:02:41.000Z".to_owned(),
            idem_key: Some("k".to_owned()),
            payload_hash: hash,
            attrs: [("a".to_owned(), "b".to_owned())].into(),
            corr_id: "c".to_owned(),
            shard: 1,
            attempt: 2,
            hash_chain: hash,
            sig: None,
            receipt_handle: Some("h".to_owned()),
            visible_until_ms: Some(5),
            reply_to: None,
            group: None,
            partition: None,
            traceparent: None,
            payload_b64: Payload(payload.to_vec().into()),
        }
    }

    fn record(payload: &[u8], death: Option<Death>) -> Record {
        Record {
            envelope: envelope(payload),
            state: "dead".to_owned(),
            receivable_in_ms: 3,
            last_error: death.is_some().then(|| "why".to_owned()),
            death,
        }
    }

    fn written(reply: Reply) -> Value {
        let mut out = b"before".to_vec();
        write(reply, &mut out);
        serde_json::from_slice(out.strip_prefix(b"before").unwrap()).unwrap()
    }

    /// What HTTP says, with text where there can be text.
    fn with_text(mut message: Value, text: Option<&str>) -> Value {
        if let Some(text) = text {
            let fields = message.as_object_mut().unwrap();
            fields.remove("payload_b64").unwrap();
            fields.insert("text".to_owned(), text.into());
        }
        message
    }

    #[test]
    fn a_payload_is_text_if_it_can_be() {
        let tricky = "a \"quote\", \\, \u{1}\n, é, \u{1F600}";
        let death = Death { reason: "expired".to_owned(), at: "2025".to_owned(), order: 9 };
        for (payload, text) in [
            (&b"hello"[..], Some("hello")),
            (b"", Some("")),
            (tricky.as_bytes(), Some(tricky)),
            (b"\xff\x00", None),
            // As text it would be six times as long.
            (&[1; 100], None),
        ] {
            let one = serde_json::to_value(envelope(payload)).unwrap();
            let one = with_text(one, text);
            for count in 0..3 {
                let messages = vec![envelope(payload); count];
                let expected = serde_json::json!({ "messages": vec![one.clone(); count] });
                assert_eq!(written(Reply::Received(Received { messages })), expected);
            }
            let looked_at = [record(payload, None), record(payload, Some(death.clone()))];
            let expected = looked_at.clone().map(|record| {
                let expected = with_text(serde_json::to_value(&record).unwrap(), text);
                assert_eq!(written(Reply::Record(Box::new(record))), expected);
                expected
            });
            let records = Records { messages: looked_at.to_vec() };
            assert_eq!(
                written(Reply::Records(records))["messages"],
                Value::from(expected.to_vec())
            );
        }
    }

    #[test]
    fn the_rest_is_as_over_http() {
        assert_eq!(written(Reply::Done(Done { ok: true })), serde_json::json!({ "ok": true }));
        let sent = Sent { msg_id: "01".to_owned(), duplicate: false };
        let expected = serde_json::json!({ "msg_id": "01", "duplicate": false });
        assert_eq!(written(Reply::Sent(sent)), expected);
        let topics = Topics { topics: Vec::new() };
        assert_eq!(written(Reply::Topics(topics)), serde_json::json!({ "topics": [] }));
    }

    #[test]
    fn there_is_room_for_a_message_before_it_is_written() {
        for payload in [&b"\x01".repeat(5000)[..], &b"x".repeat(5000), &b"\xff".repeat(5000), b""] {
            let envelope = envelope(payload);
            let room = room_for(&envelope);
            let mut out = Vec::new();
            write_envelope(envelope, &mut out);
            assert!(out.len() <= room, "{} in {room}", out.len());
        }
    }
}

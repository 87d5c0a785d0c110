//! Documents that may ask for something. To read one takes little more memory than the document,
//! whatever is in it. Whatever is read is read the same from the same document in other words, and
//! its messages come back as they were; whatever is refused is refused without repeating what
//! stands in it.

use mailbox_wire::call::{Asked, Reply, Request};
use mailbox_wire::hash::Hash;
use mailbox_wire::json::{Envelope, Received};
use mailbox_wire::oap::ops::{read, write};
use mailbox_wire::oap::{Hello, MAX_FRAME};
use mailbox_wire::payload::Payload;
use serde_json::Value;

/// A letter that no name has: wherever it turns up, something of the document was repeated.
const MARK: char = '¤';

/// Most bytes that one input stands for.
const MOST: usize = 1 << 20;
/// Longer documents are only read: all else would take too long.
const WHOLE: usize = 64 * 1024;
/// What reading may take: so many times the document, and what lists and maps take that are as long
/// as they may be.
const TIMES: usize = 2;
const LISTS: usize = 4 << 20;
/// What may be taken at once: a text in which something is escaped, and a list, is put together in
/// a buffer that doubles, so for a document as large as a frame that is up to two of them.
const AT_ONCE: usize = 2 * MAX_FRAME;

/// Begins something that stands there many times: how often (a number, and how often that is
/// doubled), how long it is, and what it is. Neither of these signs can be in a document as it is.
const MANY: u8 = 1;
/// Stands for how often it was there before.
const COUNT: u8 = 2;

/// Checks all that. `allow` is told how much may be allocated at once, and in all.
pub(crate) fn check(input: &[u8], allow: fn(usize, usize)) {
    let input = &*expanded(input);
    allow(AT_ONCE, TIMES * input.len() + LISTS);
    let op = read(input);
    let hello = Hello::read(input);
    allow(usize::MAX, usize::MAX);
    if input.len() > WHOLE {
        return;
    }

    let document = serde_json::from_slice::<Value>(input).ok();
    if let Ok(op) = &op {
        check_again(document.as_ref(), op);
        check_messages(op);
        assert!(hello.is_err(), "a document is two things");
    }
    if let Some(document) = document {
        check_refusal(&document.to_string());
        check_refusal(&marked(&document, false).to_string());
        check_refusal(&marked(&document, true).to_string());
    }
}

/// What an input stands for: few bytes are a long list.
fn expanded(mut input: &[u8]) -> Vec<u8> {
    let mut document = Vec::new();
    while let [sign, rest @ ..] = input {
        input = rest;
        match (*sign, rest) {
            (MANY, [count, times, len, rest @ ..]) => {
                let (block, rest) = rest.split_at(rest.len().min(usize::from(*len)));
                for count in 0..u32::from(*count) << (times & 15) {
                    if document.len() > MOST {
                        break;
                    }
                    for sign in block {
                        match *sign {
                            COUNT => document.extend(count.to_string().bytes()),
                            sign => document.push(sign),
                        }
                    }
                }
                input = rest;
            }
            (sign, _) => document.push(sign),
        }
    }
    document
}

/// The same document, with everything in another order and nothing escaped that need not be.
fn check_again(document: Option<&Value>, op: &Asked) {
    let document = document.expect("what can be read is JSON");
    assert!(document.is_object(), "only an object is read");
    let again = read(document.to_string().as_bytes());
    assert!(again.as_ref() == Ok(op), "the order of fields makes a difference");
}

/// The same document with a mark on every text in it, and on every name if so wished. What it asks
/// for stays, or nothing else would be looked at.
fn marked(document: &Value, with_names: bool) -> Value {
    let mut marked = mark(document, with_names);
    if let (Some(fields), Some(op)) = (marked.as_object_mut(), document.get("op")) {
        fields.insert("op".to_owned(), op.clone());
    }
    marked
}

fn mark(document: &Value, with_names: bool) -> Value {
    match document {
        Value::String(text) => format!("{text}{MARK}\"{MARK}").into(),
        Value::Array(list) => list.iter().map(|it| mark(it, with_names)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| {
                let name = if with_names {
                    format!("{name}`{MARK}`, expected {MARK}")
                } else {
                    name.clone()
                };
                (name, mark(value, with_names))
            })
            .collect(),
        other => other.clone(),
    }
}

fn check_refusal(document: &str) {
    let said = [
        read(document.as_bytes()).map(|_| ()).map_err(|bad| format!("{bad} {bad:?}")),
        Hello::read(document.as_bytes()).map(|_| ()).map_err(|bad| format!("{bad} {bad:?}")),
    ];
    for said in said.into_iter().filter_map(Result::err) {
        assert!(!said.contains(MARK), "a refusal repeats the document: {said}");
    }
}

/// Every message that is sent is received with the same payload: as text or as base64, never both;
/// as text if nothing in it has to be escaped, as base64 if it is no text.
fn check_messages(op: &Asked) {
    let payloads: Vec<&Payload> = match op {
        Asked::Call(Request::Send(request)) => vec![&request.payload_b64],
        Asked::Call(Request::SendBatch(batch)) => {
            batch.messages.iter().map(|message| &message.payload_b64).collect()
        }
        _ => return,
    };
    let messages = payloads.iter().map(|payload| envelope((*payload).clone())).collect();
    let mut out = Vec::new();
    write(Reply::Received(Received { messages }), &mut out);
    let written: Value = serde_json::from_slice(&out).expect("an answer is JSON");
    let written = written["messages"].as_array().expect("there is a list of messages");
    assert_eq!(written.len(), payloads.len());
    for (message, payload) in written.iter().zip(payloads) {
        let (text, base64) = (&message["text"], &message["payload_b64"]);
        if let Some(text) = text.as_str() {
            assert!(text.as_bytes() == payload.0 && base64.is_null(), "another text");
            continue;
        }
        let read: Payload = serde_json::from_value(base64.clone()).expect("base64");
        assert!(read == *payload && text.is_null(), "other bytes");
        // Text that would be much longer escaped may be base64, plain text never is.
        let escaped = |text: &str| serde_json::to_string(text).expect("text is JSON");
        let plain =
            std::str::from_utf8(&payload.0).is_ok_and(|it| escaped(it).len() == it.len() + 2);
        assert!(!plain, "text is not there as text");
    }
}

fn envelope(payload_b64: Payload) -> Envelope {
    let hash = Hash::of_payload(&payload_b64.0);
    Envelope {
        msg_id: "01".to_owned(),
        topic: "jobs".to_owned(),
        ts: "2025-10-12T18:02:41.000Z".to_owned(),
        idem_key: None,
        payload_hash: hash,
        attrs: [("k".to_owned(), "\u{1}\"".to_owned())].into(),
        corr_id: "c".to_owned(),
        shard: 1,
        attempt: 1,
        hash_chain: hash,
        sig: None,
        receipt_handle: None,
        visible_until_ms: None,
        reply_to: None,
        group: None,
        partition: None,
        traceparent: None,
        payload_b64,
    }
}

//! What it costs to read lists that somebody made to cost a lot. A test binary of its own, and a
//! process for each of them, because the memory of the whole process is measured, in which there
//! must be no room left by another one.
#![cfg(all(feature = "oap", feature = "proto", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

use std::process::Command;

use bytes::{Bytes, BytesMut};
use mailbox_wire::json::{DeadRequest, LookUpRequest, MintRequest, SendBatchRequest, SendRequest};
use mailbox_wire::oap::ops;
use mailbox_wire::proto::{read_reply, read_request, read_streamed};
use serde::de::DeserializeOwned;

/// As much as a body may have.
const LEN: usize = 8 << 20;
/// What is read before it is noticed that it is too much, and the noise of the allocator. What all
/// of a list would take is many times as much.
const SLACK: usize = 12 << 20;

/// What of this process is in memory, in bytes: now (`VmRSS`), or at most so far (`VmHWM`).
fn memory(which: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    let kilobytes = line.trim_start_matches(':').trim_end_matches("kB").trim();
    kilobytes.parse::<usize>().unwrap() * 1024
}

/// Reads a document, and says whether that could be done, and what it cost beside the document.
fn cost(document: Vec<u8>, read: fn(Bytes) -> bool) -> (bool, usize) {
    let document = Bytes::from(document);
    // From here on the most is counted.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS");
    let was_read = read(document.clone());
    (was_read, memory("VmHWM").saturating_sub(before))
}

fn from_json<T: DeserializeOwned>(document: Bytes) -> bool {
    serde_json::from_slice::<T>(&document).is_ok()
}

fn from_op(document: Bytes) -> bool {
    ops::read(&document).is_ok()
}

fn from_request(document: Bytes) -> bool {
    read_request(document).is_ok()
}

fn from_reply(document: Bytes) -> bool {
    read_reply(document).is_ok()
}

fn from_stream(document: Bytes) -> bool {
    read_streamed(&mut BytesMut::from(document), LEN).is_ok()
}

/// So many elements that it is as long as a body, each with a number of its own.
fn elements(element: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut all = Vec::with_capacity(LEN);
    for number in 0.. {
        let element = element(number);
        if all.len() + element.len() > LEN - 100 {
            break;
        }
        all.extend(element);
    }
    all
}

/// A document with a list, between what is before and behind it.
fn document(before: &str, element: impl Fn(usize) -> String, behind: &str) -> Vec<u8> {
    let mut all = before.as_bytes().to_vec();
    all.extend(elements(|number| format!("{},", element(number)).into_bytes()));
    all.pop();
    all.extend(behind.bytes());
    all
}

/// A field with its length before it.
fn field(number: u32, inside: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(inside.len() + 10);
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut field);
    prost::encoding::encode_varint(inside.len() as u64, &mut field);
    field.extend(inside);
    field
}

/// An entry of a map with a key of its own.
fn entry(map: u32, number: usize) -> Vec<u8> {
    field(map, &field(1, number.to_string().as_bytes()))
}

/// A document, and whoever reads it.
type Hostile = (&'static str, fn() -> Vec<u8>, fn(Bytes) -> bool);

fn texts(before: &str) -> Vec<u8> {
    document(before, |_| "\"\"".to_owned(), "]}")
}

fn pair(number: usize) -> String {
    format!("\"{number}\":\"\"")
}

fn full_messages() -> Vec<u8> {
    let full = (0..100).map(pair).collect::<Vec<_>>().join(",");
    let full = format!("{{\"payload_b64\":\"\",\"attrs\":{{{full}}}}}");
    document("{\"messages\":[", |_| full.clone(), "]}")
}

const JSON: [Hostile; 9] = [
    ("lookup", || texts("{\"msg_ids\":["), from_json::<LookUpRequest>),
    ("dead", || texts("{\"topic\":\"\",\"msg_ids\":["), from_json::<DeadRequest>),
    ("mint ops", || texts("{\"ops\":["), from_json::<MintRequest>),
    ("mint caveats", || texts("{\"ops\":[],\"caveats\":["), from_json::<MintRequest>),
    (
        "attributes",
        || document("{\"topic\":\"\",\"payload_b64\":\"\",\"attrs\":{", pair, "}}"),
        from_json::<SendRequest>,
    ),
    ("attributes of many", full_messages, from_json::<SendBatchRequest>),
    ("op lookup", || texts("{\"op\":\"lookup\",\"topic\":\"\",\"msg_ids\":["), from_op),
    ("op reprocess", || texts("{\"op\":\"reprocess\",\"topic\":\"\",\"msg_ids\":["), from_op),
    (
        "op send",
        || document("{\"op\":\"send\",\"topic\":\"\",\"text\":\"\",\"attrs\":{", pair, "}}"),
        from_op,
    ),
];

fn ids(list: u32) -> Vec<u8> {
    elements(|_| field(list, b""))
}

fn attributes(map: u32) -> Vec<u8> {
    elements(|number| entry(map, number))
}

fn full_batch() -> Vec<u8> {
    let full: Vec<u8> = (0..100).flat_map(|number| entry(4, number)).collect();
    let full = field(2, &full);
    field(2, &elements(|_| full.clone()))
}

/// Longer than `reprocess`, which it is in.
fn longer() -> Vec<u8> {
    [&[0xCA, 1, 2][..], &field(3, &ids(1))].concat()
}

fn streamed() -> Vec<u8> {
    let mut streamed = Vec::new();
    let envelope = attributes(6);
    prost::encoding::encode_varint(envelope.len() as u64, &mut streamed);
    streamed.extend(&envelope);
    streamed
}

const PROTO: [Hostile; 11] = [
    ("look_up", || field(22, &ids(2)), from_request),
    ("reprocess", || field(25, &field(3, &ids(1))), from_request),
    ("delete_dead", || field(26, &field(3, &ids(1))), from_request),
    ("mint", || field(28, &ids(4)), from_request),
    ("send", || field(1, &attributes(4)), from_request),
    ("send_batch", || field(2, &field(2, &attributes(4))), from_request),
    ("attributes of a batch", full_batch, from_request),
    ("longer", longer, from_request),
    ("received", || field(3, &field(1, &attributes(6))), from_reply),
    ("records", || field(20, &field(1, &field(1, &attributes(6)))), from_reply),
    ("streamed", streamed, from_stream),
];

/// Says to the process that is one of many which one it is.
const WHICH: &str = "HOSTILE";

#[test]
fn lists_cost_no_more_than_the_bound() {
    const THIS: &str = "lists_cost_no_more_than_the_bound";
    let mut all = JSON.into_iter().chain(PROTO);
    if let Ok(which) = std::env::var(WHICH) {
        let (name, document, read) = all.find(|(name, ..)| *name == which).unwrap();
        let document = document();
        assert!(document.len() > LEN / 2, "{name}");
        let (was_read, cost) = cost(document, read);
        assert!(cost <= SLACK, "{name}: {cost} bytes beside the document");
        assert!(!was_read, "{name}: nobody needs as much");
        return;
    }
    for (name, ..) in all {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args([THIS, "--exact", "--nocapture"]).env(WHICH, name).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }
}

/// The proof that something is measured.
#[test]
fn what_is_not_bounded_is_seen() {
    let texts = document("[", |_| "\"\"".to_owned(), "]");
    let read = |document: Bytes| serde_json::from_slice::<Vec<String>>(&document).is_ok();
    let (was_read, cost) = cost(texts, read);
    assert!(was_read && cost > 2 * SLACK, "{cost} bytes");
}

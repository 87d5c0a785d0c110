//! OAP/1: frames that are cut short, too long, out of order or make no sense. Each gets the code of
//! `docs/wire.md`, and a connection of somebody else is answered before, meanwhile and afterwards.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::oap::{APP_HELLO, APP_JSON, APP_PROTO, Flags, Frame, Header};
use tokio::io::AsyncWriteExt;

use crate::rig::{OapClient, Rig, Served, proto_reply, receive, send};

const REQ: Flags = Flags::REQ;
const START: Flags = Flags::START;
const END: Flags = Flags::END;
const EVENT: Flags = Flags::EVENT;

/// What is said, and what has to be answered: for which request, with which code, and as what. The
/// last of it if the connection is closed.
struct Bad {
    what: &'static str,
    said: Vec<u8>,
    answers: Vec<(u64, u16, u16)>,
    is_last: bool,
}

/// A frame with this payload.
fn frame(flags: Flags, app: u16, corr_id: u64, payload: &'static [u8]) -> Frame {
    Frame::new(Header::new(flags, app, corr_id), Bytes::from_static(payload))
}

fn hello(flags: Flags, corr_id: u64) -> Frame {
    frame(flags, APP_HELLO, corr_id, b"{\"ua\":\"\"}")
}

fn bytes(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    bytes.into()
}

/// A hello in which something was written over.
fn changed(flags: Flags, changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = bytes(&[hello(flags, 7)]);
    for (at, new) in changes {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    bytes
}

/// Nothing behind these can be read.
fn closing(what: &'static str, said: Vec<u8>, answers: &[(u64, u16, u16)]) -> Bad {
    Bad { what, said, answers: answers.to_vec(), is_last: true }
}

/// What is in these means nothing, but it is known where the next one begins.
fn harmless(what: &'static str, frames: &[Frame], answers: &[(u64, u16, u16)]) -> Bad {
    Bad { what, said: bytes(frames), answers: answers.to_vec(), is_last: false }
}

/// Headers that are wrong by themselves.
fn headers() -> Vec<Bad> {
    let refused = |what, flags, changes: &[(usize, &[u8])], corr_id, code| {
        closing(what, changed(flags, changes), &[(corr_id, code, 0)])
    };
    let mut all = vec![
        refused("flags above", REQ, &[(6, &[1, 1])], 7, 400),
        refused("another version", REQ, &[(4, &[0, 2])], 7, 400),
        refused("version 0", REQ, &[(4, &[0, 0])], 7, 400),
        refused("no length", REQ, &[(0, &[0; 4])], 0, 400),
        refused("a byte too long", REQ, &[(0, &[0, 0x10, 0, 1])], 7, 413),
        refused("as long as can be said", REQ, &[(0, &[0xFF; 4])], 7, 413),
        refused("too long and of another version", REQ, &[(0, &[0xFF; 4]), (4, &[0, 2])], 7, 400),
        refused("too long and flags above", REQ, &[(0, &[0xFF; 4]), (6, &[1, 1])], 7, 400),
        refused("capability without START", REQ, &[(28, &[0, 1])], 7, 400),
        refused("capability beyond the frame", REQ | START, &[(28, &[0, 10])], 7, 400),
        refused("as long a one as can be", REQ | START, &[(28, &[0xFF, 0xFF])], 7, 400),
    ];
    let lengths: [&[u8]; 8] = [
        &[0, 0, 0, 1],
        &[0, 0, 0, 3],
        &[0, 0, 0, 4],
        &[0, 0, 0, 6],
        &[0, 0, 0, 8],
        &[0, 0, 0, 29],
        &[0, 0, 0, 30],
        &[0, 0, 0, 37],
    ];
    all.extend(lengths.map(|len| refused("shorter than a header", REQ, &[(0, len)], 0, 400)));
    all
}

/// Frames that must not come where they come.
fn sequences(capability: &str) -> Vec<Bad> {
    let start = || Frame { cap: capability.to_owned().into(), ..hello(REQ | START, 1) };
    let part = |flags, app, corr_id| frame(flags, app, corr_id, b"\x08");
    let wait = Request::Receive(mailbox_wire::json::ReceiveRequest {
        wait_ms: Some(60_000),
        ..receive("quiet", 1, 30_000)
    });
    let wait = Frame {
        payload: mailbox_wire::proto::write_request(wait.into()).into(),
        ..part(REQ, APP_PROTO, 5)
    };
    let begun = (1, 200, APP_HELLO);
    let refused =
        |what, frames: &[Frame], corr_id, app| closing(what, bytes(frames), &[(corr_id, 400, app)]);
    let refused_after = |what, frames: &[Frame], corr_id, app| {
        let frames = [&[start()], frames].concat();
        closing(what, bytes(&frames), &[begun, (corr_id, 400, app)])
    };
    vec![
        refused("an answer", &[hello(Flags::RESP, 7)], 7, APP_HELLO),
        refused("a request and an answer", &[hello(REQ | Flags::RESP, 7)], 7, APP_HELLO),
        refused("neither", &[hello(Flags::ACK_REQ, 7)], 7, APP_HELLO),
        refused("a request and a part", &[part(REQ | EVENT, APP_JSON, 7)], 7, APP_JSON),
        refused("END without START", &[hello(REQ | END, 7)], 7, APP_HELLO),
        refused("a part with START", &[part(EVENT | START, APP_PROTO, 7)], 7, APP_PROTO),
        refused_after("START twice", &[hello(REQ | START, 7)], 7, APP_HELLO),
        refused_after("a part with END", &[part(EVENT | END, APP_PROTO, 7)], 7, APP_PROTO),
        refused_after("a hello in parts", &[hello(EVENT, 7)], 7, APP_HELLO),
        refused_after(
            "a second request in parts",
            &[part(EVENT, APP_PROTO, 7), part(EVENT, APP_PROTO, 8)],
            8,
            APP_PROTO,
        ),
        refused_after(
            "a part in another language",
            &[part(EVENT, APP_PROTO, 7), part(EVENT, APP_JSON, 7)],
            7,
            APP_JSON,
        ),
        refused_after(
            "a last part in another language",
            &[part(EVENT, APP_PROTO, 7), part(REQ, APP_JSON, 7)],
            7,
            APP_JSON,
        ),
        refused_after(
            "END amid parts",
            &[part(EVENT, APP_PROTO, 7), part(REQ | END, APP_PROTO, 8)],
            8,
            APP_PROTO,
        ),
        closing(
            "after END",
            bytes(&[start(), hello(REQ | END, 7), hello(REQ, 8)]),
            &[begun, (7, 200, APP_HELLO), (8, 400, APP_HELLO)],
        ),
        closing(
            "a corr_id that is in flight",
            bytes(&[start(), wait.clone(), part(REQ, APP_PROTO, 5)]),
            &[begun, (0, 400, APP_PROTO), (5, 200, APP_PROTO)],
        ),
        closing(
            "a part with a corr_id that is in flight",
            bytes(&[start(), wait, part(EVENT, APP_PROTO, 5)]),
            &[begun, (0, 400, APP_PROTO), (5, 200, APP_PROTO)],
        ),
    ]
}

/// Frames that are in order, and payloads that are not.
fn payloads(capability: &str) -> Vec<Bad> {
    let cap = capability.to_owned();
    let start = || Frame { cap: cap.clone().into(), ..hello(REQ | START, 1) };
    let begun = (1, 200, APP_HELLO);
    let refused = |what, frames: &[Frame], app| {
        let frames = [&[start()], frames].concat();
        harmless(what, &frames, &[begun, (7, 400, app)])
    };
    let sent = mailbox_wire::proto::write_request(Request::Send(send("jobs", "parts")).into());
    let [first, second, third] = [0..5, 5..10, 10..sent.len()].map(|part| {
        let header = Header::new(EVENT, APP_PROTO, 7);
        Frame::new(header, Bytes::copy_from_slice(&sent[part]))
    });
    let last = |frame: Frame| Frame { flags: REQ, ..frame };
    let compressed = |frame: Frame| Frame { flags: REQ | Flags::COMP, ..frame };
    vec![
        refused("no protobuf", &[frame(REQ, APP_PROTO, 7, b"\xFF\xFF\xFF")], APP_PROTO),
        refused("no JSON", &[frame(REQ, APP_JSON, 7, b"{\"op\":")], APP_JSON),
        refused("no op", &[frame(REQ, APP_JSON, 7, b"{}")], APP_JSON),
        refused("an op that is not known", &[frame(REQ, APP_JSON, 7, b"{\"op\":\"x\"}")], APP_JSON),
        refused("another language", &[frame(REQ, 0x0203, 7, b"{}")], 0x0203),
        refused("no hello", &[frame(REQ, APP_HELLO, 7, b"{}")], APP_HELLO),
        refused("no zstd", &[frame(REQ | Flags::COMP, APP_PROTO, 7, b"no zstd")], APP_PROTO),
        refused("nothing, compressed", &[frame(REQ | Flags::COMP, APP_JSON, 7, b"")], APP_JSON),
        refused("no part", &[last(third.clone())], APP_PROTO),
        refused(
            "parts in another order",
            &[second.clone(), first.clone(), last(third.clone())],
            APP_PROTO,
        ),
        refused("a part twice", &[first.clone(), first.clone(), second, last(third)], APP_PROTO),
        refused("a part that is no zstd", &[first.clone(), compressed(first)], APP_PROTO),
    ]
}

async fn one_sent(client: &mut OapClient, what: &str) {
    let sent = client.ask(Request::Send(send("jobs", what))).await;
    assert!(matches!(sent, Ok(Reply::Sent(_))), "{what}: {sent:?}");
}

/// What a frame that makes no sense is answered with, as often as there is something.
async fn check(served: &Served, bad: Bad, other: &mut OapClient) {
    let Bad { what, said, mut answers, is_last } = bad;
    let mut client = OapClient::open(served.oap).await;
    one_sent(other, what).await;
    // The last bytes may come when the service does not listen any more.
    let _ = client.stream.write_all(&said).await;
    one_sent(other, what).await;
    let mut heard = Vec::new();
    while heard.len() < answers.len() {
        let answer = client.frame().await;
        heard.push((answer.corr_id, answer.code, answer.app));
        if answer.code != 200 {
            let (code, problem) = proto_reply(&answer).unwrap_err();
            let named = if code == 413 { "E_FRAME_TOO_LARGE" } else { "E_SCHEMA" };
            assert_eq!(problem.code, named, "{what}: {problem:?}");
            assert!(!problem.message.is_empty() && !problem.corr_id.is_empty(), "{what}");
        }
    }
    heard.sort_unstable();
    answers.sort_unstable();
    assert_eq!(heard, answers, "{what}");
    if is_last {
        assert!(client.next_frame().await.is_none(), "{what}: it is closed");
    } else {
        one_sent(&mut client, what).await;
    }
    one_sent(other, what).await;
}

#[tokio::test]
async fn what_makes_no_sense_is_answered_with_its_code_and_leaves_others_alone() {
    let served = Rig::new().start().await;
    let capability = served.mint(&["op = send,recv", "topic = jobs,quiet"]);
    let others = served.mint(&["op = send,recv", "topic = jobs,other"]);
    let mut other = served.oap_client_with(&others).await;
    // It waits for something all the time.
    let mut waiter = served.oap_client_with(&others).await;
    let mut question = receive("other", 1, 30_000);
    question.wait_ms = Some(60_000);
    let waiting = waiter.request(Request::Receive(question));
    waiter.say(&waiting).await;
    let mut table = headers();
    table.extend(sequences(&capability));
    table.extend(payloads(&capability));
    assert!(table.len() >= 40, "{}", table.len());
    for bad in table {
        check(&served, bad, &mut other).await;
    }
    one_sent(&mut other, "last").await;
    other.ask(Request::Send(send("other", "at last"))).await.unwrap();
    let answer = waiter.frame().await;
    assert!(matches!(proto_reply(&answer), Ok(Reply::Received(it)) if it.messages.len() == 1));
}

/// How much comes of a frame before nothing comes any more.
const SHORT: [usize; 8] = [1, 3, 4, 20, 37, 38, 60, 137];

#[tokio::test]
async fn a_frame_that_is_not_complete_does_nothing_and_those_before_it_are_answered() {
    let served = Rig::new().start().await;
    let mut other = served.oap_client_with(&served.mint(&["op = send,recv,admin"])).await;
    for len in SHORT {
        let mut client = served.oap_client().await;
        let whole = client.request(Request::Send(send("whole", "whole")));
        let short = client.request(Request::Send(send("short", vec![7; 200])));
        let short = bytes(&[short]);
        client.raw(&[&bytes(&[whole])[..], &short[..len]].concat()).await;
        client.stream.shutdown().await.unwrap();
        one_sent(&mut other, "meanwhile").await;
        assert!(matches!(proto_reply(&client.frame().await), Ok(Reply::Sent(_))), "{len}");
        assert!(client.next_frame().await.is_none(), "{len}: and nothing else");
        one_sent(&mut other, "afterwards").await;
    }
    // Nor does a request of which the last part never comes.
    let mut client = served.oap_client().await;
    let part = Frame { flags: EVENT, ..client.request(Request::Send(send("short", "all of it"))) };
    client.say(&part).await;
    client.stream.shutdown().await.unwrap();
    assert!(client.next_frame().await.is_none());
    let found = other.ask(Request::Receive(receive("short", 10, 30_000))).await.unwrap();
    assert!(matches!(found, Reply::Received(it) if it.messages.is_empty()));
    let found = other.ask(Request::Receive(receive("whole", 10, 30_000))).await.unwrap();
    assert!(matches!(found, Reply::Received(it) if it.messages.len() == SHORT.len()));
}

#[tokio::test]
async fn a_frame_that_does_not_go_on_is_waited_for_no_longer_than_others_notice() {
    let served =
        Rig::new().with(|config| config.timeouts.read = Duration::from_millis(800)).start().await;
    let mut other = served.oap_client_with(&served.mint(&["op = send"])).await;
    let mut stuck = Vec::new();
    for len in SHORT {
        let mut client = served.oap_client().await;
        let frame = client.request(Request::Send(send("short", vec![7; 200])));
        client.raw(&bytes(&[frame])[..len]).await;
        stuck.push(client);
    }
    for mut client in stuck {
        one_sent(&mut other, "meanwhile").await;
        assert!(client.next_frame().await.is_none(), "it is closed, and nothing was answered");
    }
    let mut client = served.oap_client().await;
    let found = client.ask(Request::Receive(receive("short", 10, 30_000))).await.unwrap();
    assert!(matches!(found, Reply::Received(it) if it.messages.is_empty()), "nothing was done");
}

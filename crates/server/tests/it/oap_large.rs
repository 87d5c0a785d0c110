//! OAP/1: what is large, and what comes in parts, when it is refused or waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use mailbox::backends::memory::MemoryBackend;
use mailbox::{Backend, Name, ReceiptHandle, Settlement, Verdict};
use mailbox_wire::call::{Reply, Request, TopicRequest};
use mailbox_wire::json::{
    Envelope, ReceiveRequest, SettleBatchRequest, SettleItem, SettleOp, SettleResult,
};
use mailbox_wire::oap::{APP_PROTO, Flags, Frame, Header, MAX_FRAME, MAX_INFLIGHT};
use mailbox_wire::proto::{Streamed, read_streamed};
use tokio::io::AsyncWriteExt;

use crate::rig::{OapClient, PATIENCE, Rig, proto_reply, receive, send, until};

fn received(reply: Reply) -> Vec<Envelope> {
    match reply {
        Reply::Received(received) => received.messages,
        other => panic!("{other:?}"),
    }
}

fn waiting(topic: &str) -> Request {
    Request::Receive(ReceiveRequest { wait_ms: Some(60_000), ..receive(topic, 1, 30_000) })
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn what_was_received_is_settled_by_a_large_request_when_the_rate_is_used_up() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    for _ in 0..200 {
        client.ask(Request::Send(send("jobs", "x"))).await.unwrap();
    }
    let held = served.mint(&["op = recv,ack,nack", "topic = jobs", "rate = 100/h"]);
    let mut held = served.oap_client_with(&held).await;
    let messages =
        received(held.ask(Request::Receive(receive("jobs", 200, 30_000))).await.unwrap());
    assert_eq!(messages.len(), 200, "the rate, and its burst");
    let nack = |it: Envelope| SettleItem {
        receipt_handle: it.receipt_handle,
        reason: Some("r".repeat(500)),
        ..SettleItem::new(SettleOp::Nack)
    };
    let items = messages.into_iter().map(nack).collect();
    let frame = held.request(Request::SettleBatch(SettleBatchRequest { items }));
    assert!(frame.payload.len() > 64 * 1024);
    held.say(&frame).await;
    let Ok(Reply::SettledBatch(settled)) = proto_reply(&held.answer().await) else { panic!() };
    let is_ok = |it: &SettleResult| matches!(it, SettleResult::Settled { ok: true });
    assert!(settled.results.iter().all(is_ok));
}

/// The last frame of a request in parts that has no place, larger than there is room for.
#[tokio::test]
async fn parts_that_are_refused_leave_nothing_behind() {
    let small = |config: &mut mailbox_server::Config| {
        config.timeouts.read = Duration::from_millis(300);
        config.limits.bodies = 256 * 1024;
    };
    let served = Rig::new().with(small).start().await;
    let mut client = served.oap_client().await;
    for _ in 0..MAX_INFLIGHT {
        let frame = client.request(waiting("jobs"));
        client.say(&frame).await;
    }
    let header = |flags| Header::new(flags, APP_PROTO, 9000);
    client.say(&Frame::new(header(Flags::EVENT), Bytes::from_static(b"\0"))).await;
    let last = Frame::new(header(Flags::REQ), vec![0; 600_000].into());
    client.say(&last).await;
    let refused = client.frame().await;
    assert_eq!((refused.corr_id, refused.code), (9000, 429));
    // One place gets free, and is taken with the same id.
    let mut other = served.oap_client().await;
    other.ask(Request::Send(send("jobs", "x"))).await.unwrap();
    assert_eq!(received(proto_reply(&client.frame().await).unwrap()).len(), 1);
    let again = client.request(Request::Send(send("others", "y")));
    client.say(&Frame { corr_id: 9000, ..again }).await;
    let answer = client.frame().await;
    assert_eq!(answer.corr_id, 9000);
    assert!(matches!(proto_reply(&answer), Ok(Reply::Sent(_))));
    // And nobody takes it for one who says something slowly.
    // One who does that begins later, and is cut off meanwhile.
    let mut slow = served.oap_client().await;
    let mut bytes = BytesMut::new();
    slow.request(Request::Send(send("others", "z"))).encode(&mut bytes).unwrap();
    slow.raw(&bytes[..10]).await;
    assert!(slow.next_frame().await.is_none());
    client.ask(Request::Send(send("others", "z"))).await.unwrap();
}

/// It was taken for one who had never said anything, and was cut off as such.
#[tokio::test]
async fn whoever_was_refused_for_its_first_frame_was_heard() {
    let small = |config: &mut mailbox_server::Config| {
        config.timeouts.read = Duration::from_millis(300);
        config.limits.bodies = 256 * 1024;
    };
    let served = Rig::new().with(small).start().await;
    let mut client = OapClient::open(served.oap).await;
    let frame = client.request(Request::Send(send("jobs", vec![0; 600_000])));
    let cap = Bytes::copy_from_slice(served.operator.as_bytes());
    client.say(&Frame { flags: frame.flags | Flags::START, cap, ..frame }).await;
    assert_eq!(client.frame().await.code, 429);
    // One who says nothing comes later, and is cut off meanwhile.
    let mut silent = OapClient::open(served.oap).await;
    assert!(silent.next_frame().await.is_none());
    client.ask(Request::Send(send("jobs", "x"))).await.unwrap();
}

#[tokio::test]
async fn a_receive_that_waits_does_not_keep_the_memory_of_a_large_request_before_it() {
    const CONNECTIONS: usize = 64;
    let served = Rig::new().start().await;
    let mut clients = Vec::new();
    let before = resident();
    for _ in 0..CONNECTIONS {
        let mut client = served.oap_client().await;
        // Too large to be sent, but it is kept until that is known.
        let header = Header::new(Flags::REQ, APP_PROTO, 7000);
        client.say(&Frame::new(header, vec![0xFF; MAX_FRAME - 38].into())).await;
        assert_eq!(client.frame().await.code, 400);
        let frame = client.request(waiting("jobs"));
        client.say(&frame).await;
        clients.push(client);
    }
    let mut other: OapClient = served.oap_client().await;
    until("all wait", async || {
        let topic = TopicRequest { topic: "jobs".to_owned() };
        let Ok(Reply::Topic(topic)) = other.ask(Request::Topic(topic)).await else { panic!() };
        topic.stats.waiters == CONNECTIONS as u64
    })
    .await;
    let kept = resident().saturating_sub(before);
    assert!(kept < CONNECTIONS * MAX_FRAME / 2, "{kept} bytes");
}

#[tokio::test]
async fn a_stream_goes_on_after_a_settlement_of_which_nobody_heard() {
    let store = MemoryBackend::new();
    let served = Rig::on(Arc::<MemoryBackend>::clone(&store)).start().await;
    let mut client = served.oap_client().await;
    for body in ["one", "two"] {
        client.ask(Request::Send(send("jobs", body))).await.unwrap();
    }
    let one_at_a_time = ReceiveRequest { wait_ms: None, ..receive("jobs", 1, 3_600_000) };
    let stream = client.request(Request::ReceiveStream(one_at_a_time));
    client.say(&stream).await;
    assert!(client.frame().await.flags.contains(Flags::START));
    let first = streamed(&mut client).await;
    let handle = first.receipt_handle.unwrap();
    // The call that does this is cut off before the service has heard of it.
    let (mailbox, own) = handle.split_once('/').unwrap();
    let settlement =
        Settlement { receipt_handle: ReceiptHandle::from_text(own), verdict: Verdict::Acknowledge };
    store.settle(&Name::parse(mailbox).unwrap(), vec![settlement]).await.unwrap()[0]
        .as_ref()
        .unwrap();
    let mut again = served.oap_client().await;
    let item = SettleItem { receipt_handle: Some(handle), ..SettleItem::new(SettleOp::Ack) };
    let (code, problem) = again.ask(Request::Settle(item)).await.unwrap_err();
    assert_eq!((code, problem.code.as_str()), (404, "E_RECEIPT"));
    assert_eq!(&streamed(&mut client).await.payload_b64.0[..], b"two");
}

/// The next message of the only stream.
async fn streamed(client: &mut OapClient) -> Envelope {
    loop {
        let frame = client.frame().await;
        assert!(frame.flags.contains(Flags::EVENT), "{frame:?}");
        let mut bytes = BytesMut::from(&frame.payload[..]);
        if let Ok(Some(Streamed::Envelope(envelope))) = read_streamed(&mut bytes, 1 << 22) {
            return *envelope;
        }
    }
}

/// Whoever always has something ready was never found to wait, and so never found to be slow.
#[tokio::test]
async fn a_request_that_comes_in_empty_parts_for_ever_is_cut_off() {
    let timeout = Duration::from_millis(300);
    let served = Rig::new().with(|config| config.timeouts.read = timeout).start().await;
    let mut client = served.oap_client().await;
    let header = Header::new(Flags::EVENT, APP_PROTO, 9000);
    let mut bytes = BytesMut::new();
    for _ in 0..16_384 {
        Frame::new(header, Bytes::new()).encode(&mut bytes).unwrap();
    }
    let start = Instant::now();
    let is_cut = async {
        // So many that something is always there, and each as quick as it is taken.
        while client.stream.write_all(&bytes).await.is_ok() {
            assert!(start.elapsed() < PATIENCE, "it goes on");
        }
    };
    is_cut.await;
    assert!(start.elapsed() >= timeout, "{:?}", start.elapsed());
}

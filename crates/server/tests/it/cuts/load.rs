//! Those who work while the connections of others are cut, and must not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Envelope, SettleItem, SettleOp};
use mailbox_wire::oap::Frame;
use tokio::io::{AsyncRead, AsyncWrite};

use super::stage::Stage;
use super::{NOTICE, books::Books};
use crate::rig::{OapClient, proto_reply, receive, send};

/// Messages that are sent together, and received together.
const TOGETHER: usize = 8;

/// Works until it is told to stop; how often it has gone round.
pub(super) async fn work<S: AsyncRead + AsyncWrite + Unpin>(
    stage: Arc<Stage>,
    mut client: OapClient<S>,
    number: usize,
    stop: Arc<AtomicBool>,
) -> usize {
    let topic = format!("work-{number}");
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let by = stage.by(NOTICE);
        round(&stage, &mut client, &topic).await;
        let now = stage.pulse.now();
        assert!(now <= by, "a round took until {now}, and not {by}");
        rounds += 1;
    }
    rounds
}

/// Sends some, receives these and no others in their order, and acknowledges them.
async fn round<S: AsyncRead + AsyncWrite + Unpin>(
    stage: &Stage,
    client: &mut OapClient<S>,
    topic: &str,
) {
    let (mut numbers, mut frames) = (Vec::new(), Vec::new());
    for _ in 0..TOGETHER {
        let (number, payload) = stage.books.message(300);
        numbers.push(number);
        frames.push(client.request(Request::Send(send(topic, payload))));
    }
    for answer in ask_together(client, &frames).await {
        assert!(matches!(answer, Reply::Sent(_)), "{answer:?}");
    }
    let question = receive(topic, TOGETHER as u32, 60_000);
    let asked = client.ask(Request::Receive(question)).await;
    let Ok(Reply::Received(received)) = asked else { panic!("{asked:?}") };
    let found: Vec<_> = received.messages.iter().map(Books::number).collect();
    assert_eq!(found, numbers, "what was sent, as it was sent");
    assert!(received.messages.iter().all(|it| it.attempt == 1), "for the first time");
    let ack = |envelope: &Envelope| {
        let receipt_handle = envelope.receipt_handle.clone();
        Request::Settle(SettleItem { receipt_handle, ..SettleItem::new(SettleOp::Ack) })
    };
    let frames: Vec<_> = received.messages.iter().map(|it| client.request(ack(it))).collect();
    for answer in ask_together(client, &frames).await {
        assert!(matches!(answer, Reply::Done(_)), "{answer:?}");
    }
}

/// Asks all of it in one breath. Each is answered once.
async fn ask_together<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut OapClient<S>,
    frames: &[Frame],
) -> Vec<Reply> {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    client.raw(&bytes).await;
    let mut open: Vec<u64> = frames.iter().map(|frame| frame.corr_id).collect();
    let mut replies = Vec::new();
    while !open.is_empty() {
        let answer = client.answer().await;
        let place = open.iter().position(|corr_id| *corr_id == answer.corr_id);
        open.swap_remove(place.expect("an answer to what was asked"));
        replies.push(proto_reply(&answer).expect("nobody notices"));
    }
    replies
}

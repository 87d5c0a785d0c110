//! OAP/1: whoever has asked, and asks nothing more, is answered, however much is in between.

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::{PeekRequest, Reply, Request};
use mailbox_wire::json::SendRequest;
use mailbox_wire::oap::Frame;
use mailbox_wire::payload::Payload;
use tokio::io::AsyncWriteExt;

use crate::rig::{OapClient, Rig, proto_reply};

const SENDS: usize = 20;

fn send(payload: Bytes) -> Request {
    let payload_b64 = Payload(payload);
    Request::Send(SendRequest { topic: "jobs".to_owned(), payload_b64, ..SendRequest::default() })
}

/// Says all of it at once, and that nothing follows; what is answered.
async fn answers(mut client: OapClient, frames: Vec<Frame>) -> Vec<Frame> {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    client.raw(&bytes).await;
    client.stream.shutdown().await.unwrap();
    let mut answers = Vec::new();
    while let Some(answer) = client.next_frame().await {
        answers.push(answer);
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_come_is_done_although_nothing_follows_and_answers_wait() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    // An answer with it is more than may wait to be written before nothing more is taken.
    client.ask(send(vec![7; 300_000].into())).await.unwrap();
    for turn in 0..20 {
        let mut client = served.oap_client().await;
        let topic = "jobs".to_owned();
        let peek = client.request(Request::Peek(PeekRequest { topic, limit: Some(1) }));
        let sends = (0..SENDS).map(|_| client.request(send("more".into()))).collect::<Vec<_>>();
        let answers = answers(client, [vec![peek], sends].concat()).await;
        let is_sent = |answer: &&Frame| matches!(proto_reply(answer), Ok(Reply::Sent(_)));
        assert_eq!(answers.len(), 1 + SENDS, "in turn {turn}");
        assert_eq!(answers.iter().filter(is_sent).count(), SENDS, "in turn {turn}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_answered_too() {
    let served = Rig::new().start().await;
    for turn in 0..20 {
        let mut client = OapClient::open(served.oap).await;
        let sends = (0..250).map(|_| client.request(send("no".into()))).collect();
        let answers = answers(client, sends).await;
        assert_eq!(answers.len(), 250, "in turn {turn}");
        assert!(answers.iter().all(|answer| answer.code == 401));
    }
}

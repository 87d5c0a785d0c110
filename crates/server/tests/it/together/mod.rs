//! OAP/1: requests that come together in one write. Whatever the service makes of that, each is
//! answered once, under its own id, and as if it had come alone: the same requests are asked one by
//! one of another service, and every answer is compared.

mod flight;
mod sending;
mod settling;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use mailbox_wire::attributes::Attributes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Envelope, SettleItem, SettleOp};
use mailbox_wire::oap::{APP_JSON, APP_PROTO, Flags, Frame, Header};
use mailbox_wire::proto::{read_reply, write_request};
use serde_json::Value;

use crate::rig::{OapClient, Rig, Served, receive, send};

/// In which language something is asked: every third time in JSON.
fn asked(corr_id: u64, request: Request) -> Frame {
    if !corr_id.is_multiple_of(3) {
        let header = Header::new(Flags::REQ, APP_PROTO, corr_id);
        return Frame::new(header, write_request(request.into()).into());
    }
    let mut document = match &request {
        Request::Send(it) => serde_json::to_value(it).unwrap(),
        Request::Receive(it) => serde_json::to_value(it).unwrap(),
        Request::Settle(it) => {
            let mut document = serde_json::to_value(it).unwrap();
            document.as_object_mut().unwrap().remove("op");
            document
        }
        other => panic!("{other:?} is never asked in JSON"),
    };
    document["op"] = request.name().into();
    let header = Header::new(Flags::REQ, APP_JSON, corr_id);
    Frame::new(header, serde_json::to_vec(&document).unwrap().into())
}

fn frames(requests: &[Request]) -> Vec<Frame> {
    (1..).zip(requests).map(|(corr_id, request)| asked(corr_id, request.clone())).collect()
}

/// An answer: its code, and what it says.
type Told = (u16, Value);

fn told(answer: &Frame) -> Told {
    let is_json = answer.code != 200 || answer.app == APP_JSON;
    let value = match is_json {
        true => serde_json::from_slice(&answer.payload).unwrap(),
        false => serde_json::to_value(read_reply(answer.payload.clone()).unwrap()).unwrap(),
    };
    (answer.code, value)
}

/// Asks all of it in one write. Each is answered once, in its own language; in the order of what
/// was asked.
async fn together(client: &mut OapClient, frames: &[Frame]) -> Vec<Told> {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    client.raw(&bytes).await;
    let mut answers = BTreeMap::new();
    for _ in frames {
        let answer = client.frame().await;
        let asked = frames.iter().find(|frame| frame.corr_id == answer.corr_id);
        let asked = asked.expect("an answer to what was asked");
        assert_eq!((answer.flags, answer.app), (Flags::RESP, asked.app), "{answer:?}");
        let again = answers.insert(answer.corr_id, told(&answer));
        assert!(again.is_none(), "{} is answered again", answer.corr_id);
    }
    frames.iter().map(|frame| answers.remove(&frame.corr_id).unwrap()).collect()
}

async fn one_by_one(client: &mut OapClient, frames: &[Frame]) -> Vec<Told> {
    let mut answers = Vec::new();
    for frame in frames {
        answers.extend(together(client, std::slice::from_ref(frame)).await);
    }
    answers
}

/// What can be compared of answers of two services.
fn comparable(answers: Vec<Told>) -> Vec<Told> {
    let mut ids: Vec<Value> = Vec::new();
    let compare = |(code, mut value): Told| {
        let fields = value.as_object_mut().unwrap();
        // When to come again depends on when one came.
        if let Some(retry) = fields.get_mut("retry_after_ms") {
            *retry = true.into();
        }
        if fields.contains_key("code") {
            assert!(fields.remove("corr_id").is_some(), "{fields:?}");
        }
        if let Some(id) = fields.get_mut("msg_id") {
            // Which of those before it that is.
            let place = ids.iter().position(|known| known == id).unwrap_or(ids.len());
            ids.extend((place == ids.len()).then(|| id.clone()));
            *id = place.into();
        }
        (code, value)
    };
    answers.into_iter().map(compare).collect()
}

/// Two services that are alike, and a client of each with the same rights.
async fn two(caveats: &[&str]) -> [(Served, OapClient); 2] {
    let one = async || {
        let served = Rig::new().start().await;
        let capability = served.mint(caveats);
        let client = served.oap_client_with(&capability).await;
        (served, client)
    };
    [one().await, one().await]
}

/// Everything in a mailbox, in its order.
async fn all(served: &Served, topic: &str) -> Vec<Bytes> {
    let mut client = served.oap_client().await;
    messages(&mut client, topic).await.into_iter().map(|it| it.payload_b64.0).collect()
}

async fn messages(client: &mut OapClient, topic: &str) -> Vec<Envelope> {
    let question = Request::Receive(receive(topic, 200, 30_000));
    let Ok(Reply::Received(received)) = client.ask(question).await else { panic!("no messages") };
    received.messages
}

/// Asks the same together and one by one. What was accepted is there then, in order.
async fn both(what: &str, caveats: &[&str], requests: &[Request]) -> [Vec<Told>; 2] {
    let [(first, mut quick), (second, mut slow)] = two(caveats).await;
    let frames = frames(requests);
    let answers = [together(&mut quick, &frames).await, one_by_one(&mut slow, &frames).await];
    for (served, answers) in [&first, &second].into_iter().zip(&answers) {
        for topic in ["jobs", "other", "third"] {
            let sent = requests.iter().zip(answers).filter_map(|(request, (code, value))| {
                let Request::Send(it) = request else { return None };
                let is_new = *code == 200 && value["duplicate"] == false;
                (is_new && it.topic == topic).then(|| it.payload_b64.0.clone())
            });
            let expected: Vec<Bytes> = sent.collect();
            assert_eq!(all(served, topic).await, expected, "{what}, {caveats:?}: in {topic}");
        }
    }
    answers.map(comparable)
}

/// The same, and all answers are the same.
async fn compare(what: &str, caveats: &[&str], requests: &[Request]) -> Vec<Told> {
    let [found, expected] = both(what, caveats, requests).await;
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{what}, {caveats:?}: request {place}");
    }
    found
}

fn good(number: usize) -> Request {
    Request::Send(send("jobs", format!("message {number}")))
}

fn codes(answers: &[Told]) -> Vec<u16> {
    answers.iter().map(|(code, _)| *code).collect()
}

fn settle(op: SettleOp, handle: Option<String>) -> SettleItem {
    SettleItem { receipt_handle: handle, ..SettleItem::new(op) }
}

fn ack(handle: impl Into<String>) -> Request {
    Request::Settle(settle(SettleOp::Ack, Some(handle.into())))
}

fn pair(key: &str, value: &str) -> Attributes {
    [(key.to_owned(), value.to_owned())].into()
}

//! Connections that are cut, at every frame and inside of frames, while others work: nothing that
//! was accepted is lost, and nothing is out of sight for longer than its visibility timeout.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::{Reply, Request, TopicRequest};
use mailbox_wire::json::{
    Envelope, ReceiveRequest, SendRequest, SettleBatchRequest, SettleItem, SettleOp, SettleResult,
};
use mailbox_wire::oap::{APP_HELLO, Decoder, Flags, Frame, Header};
use mailbox_wire::payload::Payload;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{OapClient, PATIENCE, Rig, Served, proto_reply};

const CUTS: usize = 1000;
const VISIBILITY: Duration = Duration::from_secs(2);
/// What a busy machine may add to it.
const SLACK: Duration = Duration::from_secs(3);
const WORKERS: usize = 3;
/// What a session sends, and asks for in the end.
const SENDS: usize = 3;
/// Its answers: to how it begins, to each send, and to the receive.
const ANSWERS: usize = 1 + SENDS + 1;

/// What was accepted, and what was consumed, by what is in it.
#[derive(Default)]
struct Books {
    next: AtomicU64,
    accepted: Mutex<HashSet<u64>>,
    consumed: Mutex<HashSet<u64>>,
}

impl Books {
    fn message(&self) -> (u64, Request) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let payload_b64 = Payload(number.to_be_bytes().to_vec().into());
        let topic = "jobs".to_owned();
        (number, Request::Send(SendRequest { topic, payload_b64, ..SendRequest::default() }))
    }

    fn missing(&self) -> Vec<u64> {
        self.accepted.lock().difference(&self.consumed.lock()).copied().collect()
    }
}

fn receive(most: usize) -> Request {
    Request::Receive(ReceiveRequest {
        topic: "jobs".to_owned(),
        visibility_ms: Some(VISIBILITY.as_millis() as u64),
        max_messages: u32::try_from(most).ok(),
        ..ReceiveRequest::default()
    })
}

/// Receives some, and acknowledges them.
async fn consume(client: &mut OapClient, books: &Books, most: usize) {
    let asked = client.ask(receive(most)).await;
    let Ok(Reply::Received(received)) = asked else { panic!("no messages") };
    let acknowledge = |envelope: &Envelope| {
        let receipt_handle = envelope.receipt_handle.clone();
        SettleItem { receipt_handle, ..SettleItem::new(SettleOp::Ack) }
    };
    let items: Vec<_> = received.messages.iter().map(acknowledge).collect();
    if items.is_empty() {
        return;
    }
    let asked = client.ask(Request::SettleBatch(SettleBatchRequest { items })).await;
    let Ok(Reply::SettledBatch(settled)) = asked else { panic!("nothing settled") };
    let mut consumed = books.consumed.lock();
    for (envelope, result) in received.messages.iter().zip(settled.results) {
        if let SettleResult::Settled { .. } = result {
            let number = envelope.payload_b64.0.as_ref().try_into().unwrap();
            consumed.insert(u64::from_be_bytes(number));
        }
    }
}

/// One who is not cut, and consumes no more than it sends: what the others have sent stays, so that
/// there is something in their answers.
async fn work(mut client: OapClient, books: Arc<Books>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..SENDS {
            let (number, message) = books.message();
            client.ask(message).await.unwrap();
            books.accepted.lock().insert(number);
        }
        consume(&mut client, &books, SENDS).await;
    }
}

/// A session as bytes: how it begins, some sends and a receive; and what was sent.
fn session(client: &mut OapClient, capability: &str, books: &Books) -> (BytesMut, Vec<(u64, u64)>) {
    let (mut bytes, mut sent) = (BytesMut::new(), Vec::new());
    let hello = Header::new(Flags::REQ | Flags::START, APP_HELLO, u64::MAX);
    let cap = Bytes::copy_from_slice(capability.as_bytes());
    let hello = Frame { cap, ..Frame::new(hello, Bytes::from_static(b"{\"ua\":\"cut\"}")) };
    hello.encode(&mut bytes).unwrap();
    for _ in 0..SENDS {
        let (number, message) = books.message();
        let frame = client.request(message);
        frame.encode(&mut bytes).unwrap();
        sent.push((frame.corr_id, number));
    }
    client.request(receive(SENDS)).encode(&mut bytes).unwrap();
    (bytes, sent)
}

/// Where to cut, of so many bytes, in this of so many turns: at every boundary of a frame, and
/// everywhere between.
fn place(bytes: &[u8], turn: usize, turns: usize) -> usize {
    let mut boundaries = vec![0];
    while let Some(len) =
        bytes.get(boundaries[boundaries.len() - 1]..).and_then(|rest| rest.get(..4))
    {
        let len = u32::from_be_bytes(len.try_into().unwrap()) as usize;
        boundaries.push(boundaries[boundaries.len() - 1] + len);
    }
    match turn.checked_sub(boundaries.len()) {
        None => boundaries[turn].min(bytes.len()),
        Some(rest) => rest * bytes.len() / (turns - boundaries.len()),
    }
}

/// One connection that is cut; how much of the answers there was to cut.
async fn cut(served: &Served, books: &Books, turn: usize, answer_len: usize) -> usize {
    let mut client = OapClient::open(served.oap).await;
    let (bytes, sent) = session(&mut client, &served.operator, books);
    // In turns: what the client says is cut, or what it hears.
    let (said, heard) = match turn % 2 {
        0 => (place(&bytes, turn / 2, CUTS / 2), 0),
        _ => (bytes.len(), (turn / 2) * answer_len / (CUTS / 2)),
    };
    let mut stream = client.stream;
    stream.write_all(&bytes[..said]).await.unwrap();
    let hear = hear(&mut stream, heard);
    let (answers, total) = tokio::time::timeout(PATIENCE, hear).await.expect("answers come");
    if turn % 4 < 2 {
        // Hard: the other end learns it from a reset.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop(stream);
    for answer in answers {
        let number = sent.iter().find(|(corr_id, _)| *corr_id == answer.corr_id);
        if let (Some((_, number)), Ok(Reply::Sent(_))) = (number, proto_of(&answer)) {
            books.accepted.lock().insert(*number);
        }
    }
    total
}

/// Reads so many bytes of the answers, or all of them if there are fewer; how many there were.
async fn hear(stream: &mut TcpStream, most: usize) -> (Vec<Frame>, usize) {
    let (mut decoder, mut bytes) = (Decoder::default(), BytesMut::new());
    let (mut answers, mut total) = (Vec::new(), 0);
    while answers.len() < ANSWERS && total < most {
        let mut some = vec![0; most - total];
        let count = stream.read(&mut some).await.expect("only the client cuts");
        assert_ne!(count, 0, "only the client cuts");
        total += count;
        bytes.extend_from_slice(&some[..count]);
        while let Some(answer) = decoder.decode(&mut bytes).unwrap() {
            answers.push(answer);
        }
    }
    (answers, total)
}

fn proto_of(answer: &Frame) -> Result<Reply, ()> {
    // A hello is no answer in protobuf.
    if answer.app == APP_HELLO { Err(()) } else { proto_reply(answer).map_err(|_| ()) }
}

/// How long the answers of a whole session are.
async fn whole_answer(served: &Served, books: &Books) -> usize {
    let mut client = OapClient::open(served.oap).await;
    let (bytes, sent) = session(&mut client, &served.operator, books);
    client.raw(&bytes).await;
    let mut len = 0;
    for _ in 0..ANSWERS {
        let answer = client.frame().await;
        len += answer.header().unwrap().len as usize;
    }
    books.accepted.lock().extend(sent.iter().map(|(_, number)| number));
    len
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cuts_under_load_lose_nothing_and_strand_nothing() {
    let served = Rig::new().start().await;
    let (books, stop) = (Arc::new(Books::default()), Arc::new(AtomicBool::new(false)));
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let client = served.oap_client().await;
        workers.push(tokio::spawn(work(client, Arc::clone(&books), Arc::clone(&stop))));
    }
    let answer_len = whole_answer(&served, &books).await;
    let mut heard = 0;
    for turn in 0..CUTS {
        heard += cut(&served, &books, turn, answer_len).await;
    }
    let last = Instant::now();
    assert!(heard > CUTS / 4 * answer_len / 2, "answers were there to be cut");
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    // All that was accepted is there, and comes back in time.
    let mut client = served.oap_client().await;
    loop {
        consume(&mut client, &books, 256).await;
        let topic = TopicRequest { topic: "jobs".to_owned() };
        let Ok(Reply::Topic(topic)) = client.ask(Request::Topic(topic)).await else { panic!() };
        let stats = topic.stats;
        if stats.ready + stats.invisible + stats.delayed == 0 {
            break;
        }
        assert!(last.elapsed() < VISIBILITY + SLACK, "stranded: {stats:?}");
    }
    assert_eq!(books.missing(), [0; 0], "lost");
    let accepted = books.accepted.lock().len();
    assert!(accepted > CUTS / 4, "there was something to lose: {accepted}");
}

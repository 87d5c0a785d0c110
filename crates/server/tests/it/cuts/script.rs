//! What is said on a connection that is cut: sessions of all kinds, frame by frame, and what each
//! frame does if all of it arrives.

use bytes::Bytes;
use mailbox_wire::call::{Asked, Request};
use mailbox_wire::json::{
    BatchMessage, Envelope, ReceiveRequest, SendBatchRequest, SettleBatchRequest, SettleItem,
    SettleOp,
};
use mailbox_wire::oap::{APP_HELLO, APP_JSON, APP_PROTO, Flags, Frame, Header, deflate};
use mailbox_wire::proto::write_request;

use super::books::Books;
use super::{KIB, VISIBILITY};
use crate::rig::{message, send};

/// What a session is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Messages one by one, and a receive.
    Singles,
    /// Several at once, without a hello.
    Batch,
    /// A request in parts, with others between.
    Parts,
    /// Requests and answers that are compressed.
    Compressed,
    /// Acknowledgements, one by one and together.
    Acks,
    /// A receive that waits.
    Waiting,
    /// A receive whose answer is a large frame.
    Large,
    /// One whose answer is too large for a frame.
    InParts,
    /// Receives with an answer each.
    Several,
    /// A stream.
    Stream,
    /// What is settled of a stream that goes on, until it is cancelled.
    Settling,
}

impl Kind {
    pub(super) const ALL: [Self; 11] = [
        Self::Singles,
        Self::Batch,
        Self::Parts,
        Self::Compressed,
        Self::Acks,
        Self::Waiting,
        Self::Large,
        Self::InParts,
        Self::Several,
        Self::Stream,
        Self::Settling,
    ];

    /// How many messages are there before, and how large each is.
    pub(super) const fn stock(self) -> (usize, usize) {
        match self {
            Self::Singles | Self::Batch | Self::Parts | Self::Compressed => (2, 100),
            Self::Acks => (6, 100),
            Self::Waiting => (0, 0),
            Self::Large => (4, 96 * KIB),
            Self::InParts => (5, 256 * KIB),
            Self::Several => (6, 64 * KIB),
            Self::Stream => (4, 80 * KIB),
            Self::Settling => (6, 2 * KIB),
        }
    }

    /// How many of them are received before anything is cut.
    pub(super) const fn opening(self) -> usize {
        match self {
            Self::Acks => 6,
            Self::Settling => 4,
            _ => 0,
        }
    }

    pub(super) fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Settling)
    }

    /// Whether what is cut begins with the first frame of the connection.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::Singles | Self::Batch | Self::Parts | Self::Compressed | Self::Waiting)
    }
}

/// A frame, and what it does.
pub(super) struct Said {
    pub(super) frame: Frame,
    pub(super) does: Does,
}

pub(super) enum Does {
    /// Nothing yet, and it is not answered.
    Part,
    /// Nothing to any message.
    Nothing,
    /// Sends these.
    Sends(Vec<u64>),
    /// Acknowledges these.
    Acks(Vec<u64>),
    /// Receives some.
    Receives,
    /// Receives some until the end.
    Streams,
}

/// Writes sessions down.
pub(super) struct Script<'a> {
    books: &'a Books,
    capability: &'a str,
    topic: String,
    /// Which session it is: they differ a little.
    turn: usize,
    next: u64,
    stream: u64,
    pub(super) said: Vec<Said>,
}

impl<'a> Script<'a> {
    pub(super) fn new(books: &'a Books, capability: &'a str, topic: &str, turn: usize) -> Self {
        let topic = topic.to_owned();
        Self { books, capability, topic, turn, next: 1, stream: 0, said: Vec::new() }
    }

    /// How a session begins that is not cut at once.
    pub(super) fn open(&mut self, kind: Kind) {
        self.hello();
        match kind {
            Kind::Acks => self.receive(kind.opening(), None),
            Kind::Settling => self.stream(kind.opening()),
            _ => {}
        }
    }

    /// What is cut, once these have been received in the opening.
    pub(super) fn write(&mut self, kind: Kind, received: &[Envelope]) {
        match kind {
            Kind::Singles => {
                self.hello();
                self.send(100);
                self.send_in_json(100);
                self.send_in_json(3000);
                self.send(1000);
                self.receive(10, None);
            }
            Kind::Batch => {
                self.batch(8, Flags::START);
                self.send(100);
                self.receive(20, None);
            }
            Kind::Parts => {
                self.hello();
                self.in_parts();
            }
            Kind::Compressed => {
                self.hello();
                self.batch(6, Flags::COMP);
                self.batch(1, Flags::COMP);
                self.receive(20, None);
            }
            Kind::Acks => self.settle(received),
            Kind::Waiting => {
                self.hello();
                self.receive(1, Some(60_000));
            }
            Kind::Large | Kind::InParts => self.receive(10, None),
            Kind::Several => (0..kind.stock().0).for_each(|_| self.receive(1, None)),
            Kind::Stream => self.stream(kind.stock().0),
            Kind::Settling => {
                received[..3].iter().for_each(|envelope| self.ack(envelope));
                let frame = self.frame(Flags::REQ, Asked::Cancel(self.stream));
                self.said.push(Said { frame, does: Does::Nothing });
            }
        }
    }

    fn header(&mut self, flags: Flags, app: u16) -> Header {
        self.next += 1;
        Header::new(flags, app, self.next)
    }

    fn frame(&mut self, flags: Flags, asked: impl Into<Asked>) -> Frame {
        let payload = write_request(asked.into());
        Frame::new(self.header(flags, APP_PROTO), payload.into())
    }

    fn hello(&mut self) {
        let header = self.header(Flags::REQ | Flags::START, APP_HELLO);
        let cap = Bytes::copy_from_slice(self.capability.as_bytes());
        let frame = Frame { cap, ..Frame::new(header, Bytes::from_static(b"{\"ua\":\"cut\"}")) };
        self.said.push(Said { frame, does: Does::Nothing });
    }

    fn send(&mut self, len: usize) {
        let (number, payload) = self.books.message(len);
        let request = Request::Send(send(&self.topic, payload));
        let frame = self.frame(Flags::REQ | Flags::ACK_REQ | Flags::APP_E2E, request);
        self.said.push(Said { frame, does: Does::Sends(vec![number]) });
    }

    fn send_in_json(&mut self, len: usize) {
        let (number, payload) = self.books.message(len);
        let mut document = serde_json::to_value(send(&self.topic, payload)).unwrap();
        document["op"] = "send".into();
        let frame = self.json(&document);
        self.said.push(Said { frame, does: Does::Sends(vec![number]) });
    }

    fn json(&mut self, document: &serde_json::Value) -> Frame {
        let header = self.header(Flags::REQ, APP_JSON);
        Frame::new(header, serde_json::to_vec(document).unwrap().into())
    }

    /// Begins the session or is compressed, if the flags say so.
    fn batch(&mut self, count: usize, flags: Flags) {
        let (numbers, messages): (Vec<_>, Vec<BatchMessage>) = (0..count)
            .map(|_| self.books.message(2 * KIB))
            .map(|(number, payload)| (number, message(payload)))
            .unzip();
        let topic = Some(self.topic.clone());
        let request = Request::SendBatch(SendBatchRequest { topic, messages });
        let mut frame = self.frame(Flags::REQ | flags, request);
        if flags.contains(Flags::START) {
            frame.cap = Bytes::copy_from_slice(self.capability.as_bytes());
        }
        if flags.contains(Flags::COMP) {
            frame.payload = deflate(&frame.payload).expect("digits become shorter").into();
        }
        self.said.push(Said { frame, does: Does::Sends(numbers) });
    }

    /// 64 to 256 KiB in three parts, and something between them.
    fn in_parts(&mut self) {
        let len = [64 * KIB, 160 * KIB, 256 * KIB][self.turn % 3];
        let (number, payload) = self.books.message(len);
        let mut last = self.frame(Flags::REQ, Request::Send(send(&self.topic, payload)));
        let part = Header { flags: Flags::EVENT, ..last.header().unwrap() };
        for _ in 0..2 {
            let frame = Frame::new(part, last.payload.split_to(len / 3));
            self.said.push(Said { frame, does: Does::Part });
            self.send(200);
        }
        self.said.push(Said { frame: last, does: Does::Sends(vec![number]) });
    }

    fn receive(&mut self, most: usize, wait_ms: Option<u64>) {
        let request = Request::Receive(self.question(most, wait_ms));
        // Whoever compresses is answered compressed; a receive is too small for it to help, so it
        // is made larger with a field that nobody knows.
        let is_compressed = self.said.iter().any(|said| said.frame.flags.contains(Flags::COMP));
        let mut frame = self.frame(Flags::REQ, request);
        if is_compressed {
            let padded = [&frame.payload[..], &[0xFA, 0x7F, 0x88, 0x27], &[0; 5000]].concat();
            frame.payload = deflate(&padded).expect("zeros become shorter").into();
            frame.flags = frame.flags | Flags::COMP;
        }
        self.said.push(Said { frame, does: Does::Receives });
    }

    fn question(&self, most: usize, wait_ms: Option<u64>) -> ReceiveRequest {
        ReceiveRequest {
            topic: self.topic.clone(),
            visibility_ms: Some(VISIBILITY.as_millis() as u64),
            max_messages: u32::try_from(most).ok(),
            max_bytes: Some(8 << 20),
            wait_ms,
        }
    }

    fn stream(&mut self, most: usize) {
        let request = Request::ReceiveStream(self.question(most, None));
        let frame = self.frame(Flags::REQ, request);
        self.stream = frame.corr_id;
        self.said.push(Said { frame, does: Does::Streams });
    }

    fn ack(&mut self, envelope: &Envelope) {
        let frame = self.frame(Flags::REQ, Request::Settle(item(envelope)));
        self.said.push(Said { frame, does: Does::Acks(vec![Books::number(envelope)]) });
    }

    /// All but the last, in every way there is.
    fn settle(&mut self, received: &[Envelope]) {
        self.ack(&received[0]);
        let handle = received[1].receipt_handle.as_deref().unwrap();
        let frame = self.json(&serde_json::json!({"op": "ack", "receipt_handle": handle}));
        self.said.push(Said { frame, does: Does::Acks(vec![Books::number(&received[1])]) });
        self.ack(&received[2]);
        let items = received[3..5].iter().map(item).collect();
        let frame = self.frame(Flags::REQ, Request::SettleBatch(SettleBatchRequest { items }));
        let numbers = received[3..5].iter().map(Books::number).collect();
        self.said.push(Said { frame, does: Does::Acks(numbers) });
    }
}

fn item(envelope: &Envelope) -> SettleItem {
    let receipt_handle = envelope.receipt_handle.clone();
    SettleItem { receipt_handle, ..SettleItem::new(SettleOp::Ack) }
}

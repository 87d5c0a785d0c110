//! A client that speaks OAP/1 in protobuf. It says to the echo what it says to the service.

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::Request;
use mailbox_wire::json::{
    BatchMessage, ReceiveRequest, SendBatchRequest, SendRequest, SettleBatchRequest, SettleItem,
    SettleOp,
};
use mailbox_wire::oap::{APP_HELLO, APP_PROTO, Begun, Flags, Frame, HEADER_LEN, Header};
use mailbox_wire::payload::Payload;
use mailbox_wire::proto::{Asked, write_request};

use super::fields::handles;
use super::talk::{Heard, Talker};
use super::{PAYLOAD_LEN, TOPIC};

/// As long as those of the service.
const HANDLE_LEN: usize = 77;

/// What is asked again and again, with so many messages to a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    Sends(usize),
    /// Receives, each with the acknowledgement of what was received.
    Cycles(usize),
}

/// One connection.
pub(super) struct Asker {
    load: Load,
    hello: Vec<u8>,
    /// The same every time; one for each slot.
    first: Vec<Vec<u8>>,
    /// How many messages are being acknowledged, by slot.
    settling: Vec<u64>,
    /// The echo has no handles: here are some.
    is_echo: bool,
}

impl Asker {
    /// With a capability for a service, without one for an echo.
    pub(super) fn new(load: Load, capability: Option<&str>, slots: usize) -> Self {
        let payload = Bytes::from(write_request(Asked::Call(first(load))));
        let ask = |slot| encoded(&Frame::new(header(slot), payload.clone()));
        let hello = Header::new(Flags::REQ | Flags::START, APP_HELLO, 0);
        let cap = Bytes::copy_from_slice(capability.unwrap_or_default().as_bytes());
        let ua = Bytes::from_static(b"{\"ua\":\"mailbox-bench\"}");
        Self {
            load,
            hello: encoded(&Frame { cap, ..Frame::new(hello, ua) }),
            first: (1..=slots).map(ask).collect(),
            settling: vec![0; slots],
            is_echo: capability.is_none(),
        }
    }

    /// Acknowledges what was received; how many that is.
    fn settle(&self, slot: usize, answer: &[u8], out: &mut Vec<u8>) -> usize {
        let handles = match self.is_echo {
            true => vec!["a".repeat(HANDLE_LEN)],
            false => handles(answer),
        };
        let count = handles.len();
        if count > 0 {
            let acknowledge = |handle| SettleItem {
                receipt_handle: Some(handle),
                ..SettleItem::new(SettleOp::Ack)
            };
            let mut items: Vec<SettleItem> = handles.into_iter().map(acknowledge).collect();
            let request = match (self.load, items.pop()) {
                (Load::Cycles(1), Some(item)) => Request::Settle(item),
                (_, last) => {
                    items.extend(last);
                    Request::SettleBatch(SettleBatchRequest { items })
                }
            };
            let mut begun = Begun::new(out, header(slot));
            begun.buffer().extend_from_slice(&write_request(Asked::Call(request)));
            begun.finish().expect("handles are short");
        }
        count
    }
}

impl Talker for Asker {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hello);
    }

    fn ask(&mut self, slot: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first[slot - 1]);
    }

    fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<(usize, Heard)> {
        let header = Header::read(bytes).expect("a frame in order")?;
        let len = header.len as usize;
        let answer = bytes.get(HEADER_LEN..len)?;
        if header.app == APP_HELLO {
            return Some((len, Heard::Aside));
        }
        let is_good = self.is_echo || (header.code == 200 && header.flags == Flags::RESP);
        assert!(is_good, "{}: {}", header.code, String::from_utf8_lossy(answer));
        let slot = header.corr_id as usize;
        let heard = match self.load {
            Load::Sends(count) => Heard::Done(slot, count as u64),
            Load::Cycles(_) => match std::mem::take(&mut self.settling[slot - 1]) {
                0 => match self.settle(slot, answer, out) {
                    0 => Heard::Nothing,
                    count => {
                        self.settling[slot - 1] = count as u64;
                        Heard::Aside
                    }
                },
                count => Heard::Done(slot, count),
            },
        };
        Some((len, heard))
    }
}

/// What is asked first, or all that is.
fn first(load: Load) -> Request {
    let topic = TOPIC.to_owned();
    let payload_b64 = Payload(Bytes::from(vec![b'b'; PAYLOAD_LEN]));
    match load {
        Load::Sends(1) => {
            Request::Send(SendRequest { topic, payload_b64, ..SendRequest::default() })
        }
        Load::Sends(count) => {
            let message = BatchMessage { payload_b64, ..BatchMessage::default() };
            let messages = vec![message; count];
            Request::SendBatch(SendBatchRequest { topic: Some(topic), messages })
        }
        Load::Cycles(count) => {
            let max_messages = Some(count as u32);
            Request::Receive(ReceiveRequest { topic, max_messages, ..ReceiveRequest::default() })
        }
    }
}

const fn header(slot: usize) -> Header {
    Header::new(Flags::REQ, APP_PROTO, slot as u64)
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes).expect("it fits into a frame");
    bytes.to_vec()
}

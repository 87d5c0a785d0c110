//! What is in a frame: a question in JSON or in protobuf, and its answer in the same.

use bytes::Bytes;
use mailbox::{Error, ErrorKind};
use mailbox_wire::call::{Asked, Reply, Request};
use mailbox_wire::json::{Envelope, Ok as Done, Received};
use mailbox_wire::oap::ops::{self, BadOp};
use mailbox_wire::oap::{APP_JSON, APP_PROTO, Hello};
use mailbox_wire::proto;

use crate::failure::Answer;

/// How questions and answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tongue {
    Json,
    Protobuf,
}

impl Tongue {
    /// The one that a frame says.
    pub(super) fn of(app: u16) -> Answer<Self> {
        match app {
            APP_JSON => Ok(Self::Json),
            APP_PROTO => Ok(Self::Protobuf),
            _ => {
                let bound = format_args!("{APP_JSON:#06x} (JSON), {APP_PROTO:#06x} (protobuf)");
                Err(Error::invalid("app_proto_id", format_args!("{app:#06x}"), bound).into())
            }
        }
    }

    /// Reads a question. A receive in JSON is for up to ten messages if it does not say for how
    /// many, or for `most` if those are fewer.
    pub(super) fn read(self, payload: Bytes, most: u32) -> Answer<Asked> {
        Ok(match self {
            Self::Json => {
                let mut asked = ops::read(&payload).map_err(bad_op)?;
                if let Asked::Call(Request::Receive(it)) = &mut asked {
                    it.max_messages.get_or_insert(ops::USUAL.min(most));
                }
                asked
            }
            Self::Protobuf => proto::read_request(payload).map_err(unreadable)?,
        })
    }

    /// Writes an answer.
    pub(super) fn write(self, reply: Reply, out: &mut Vec<u8>) {
        match self {
            Self::Json => ops::write(reply, out),
            Self::Protobuf => proto::write_reply(reply, out),
        }
    }

    /// That it was done.
    pub(super) fn write_done(self, out: &mut Vec<u8>) {
        self.write(Reply::Done(Done { ok: true }), out);
    }

    /// Writes messages of a stream, each so that it is known where it ends.
    pub(super) fn write_messages(self, envelopes: Vec<Envelope>, out: &mut Vec<u8>) {
        for envelope in envelopes {
            match self {
                Self::Json => {
                    ops::write_envelope(envelope, out);
                    out.push(b'\n');
                }
                Self::Protobuf => proto::write_streamed(envelope, out),
            }
        }
    }

    /// A sign of life of a stream.
    pub(super) const fn sign_of_life(self) -> &'static [u8] {
        match self {
            Self::Json => b"\n",
            Self::Protobuf => &[0],
        }
    }
}

/// Who says hello is nobody's business but its own; but that it makes sense is.
pub(super) fn hello(payload: &[u8]) -> Result<(), Error> {
    Hello::read(payload).map(drop).map_err(bad_op)
}

fn unreadable(why: proto::Unreadable) -> Error {
    let message = format!("the request cannot be read: {why}");
    Error::new(ErrorKind::InvalidParameter, message)
}

fn bad_op(bad: BadOp) -> Error {
    let error = Error::new(ErrorKind::InvalidParameter, bad.to_string());
    match bad.which() {
        Some(field) => error.with_field(field),
        None => error,
    }
}

/// What one hears who does not wait any longer.
pub(super) fn nothing() -> Reply {
    Reply::Received(Received { messages: Vec::new() })
}

//! What is wrong with a frame, or with its place among the others. Never what is in it.

use std::fmt;

use super::{CHUNK, HEADER_LEN, MAX_FRAME, VERSION};

/// A frame that cannot be accepted, and whose answer it would have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong.
    pub fault: Fault,
    corr_id: u64,
}

/// What can be wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// It has flags that mean nothing.
    Flags(u16),
    /// It is of another version.
    Version(u16),
    /// It says that it has no length at all.
    Empty,
    /// It is longer than a frame may be.
    TooLong(u32),
    /// It has a capability, but does not begin a session.
    CapabilityWithoutStart,
    /// It is shorter than a header.
    Truncated(u32),
    /// Its capability does not fit into it.
    CapabilityLength(u16),
    /// Its payload is not one frame of zstd, whole and in order.
    NotZstd,
    /// Its payload inflates to more than this.
    Inflates(usize),
    /// Its payload is so well compressed that nobody inflates it: it would be more than this.
    Ratio(usize),
    /// It is neither a request nor an answer nor a part, or is several of them.
    Kind,
    /// It is an answer, from one who should ask.
    AnswerFromClient,
    /// It is a request, from one who should answer.
    RequestFromServer,
    /// It begins a session or an answer that has begun.
    SecondStart,
    /// It ends what has not begun.
    EndWithoutStart,
    /// It comes after the last one.
    AfterEnd,
    /// It is the last one, but a request is not complete.
    EndWithinParts,
    /// A request that is not answered has the same `corr_id`.
    CorrIdInUse,
    /// It is a part of a request, but another one is not complete.
    SecondInParts,
    /// It is a part that begins or ends something or says hello, or an answer that does both.
    PartFlags,
    /// It is of another `app_proto_id` than the parts before it.
    PartApp,
    /// It answers what was not asked, or is answered.
    NotAsked,
    /// It is a part or the end of an answer that has not begun.
    NotBegun,
    /// It is a whole answer to what is being answered in parts.
    NotEnded,
    /// It begins or ends an answer with a code that says neither, or is a part with a code.
    Code(u16),
    /// It is a part of an answer, and larger than one may be.
    PartTooLarge(usize),
}

impl Malformed {
    pub(super) const fn new(fault: Fault, corr_id: u64) -> Self {
        Self { fault, corr_id }
    }

    /// The code of the answer.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self.fault {
            Fault::TooLong(_) | Fault::Inflates(_) | Fault::Ratio(_) => 413,
            _ => 400,
        }
    }

    /// Whose answer it would have been; 0 if that could not be read.
    #[must_use]
    pub const fn corr_id(&self) -> u64 {
        self.corr_id
    }

    /// Whether nothing that follows on the connection can be trusted. What does not inflate was in
    /// a frame that was in order.
    #[must_use]
    pub const fn closes(&self) -> bool {
        !matches!(self.fault, Fault::NotZstd | Fault::Inflates(_) | Fault::Ratio(_))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Flags(bits) => {
                return write!(f, "flags {bits:#06x}: those above 0x00ff mean nothing");
            }
            Self::Version(version) => {
                return write!(f, "version {version}: only {VERSION} is spoken here");
            }
            Self::Empty => "len is 0: it counts the header too",
            Self::TooLong(len) => {
                return write!(f, "len is {len}: at most {MAX_FRAME}, send it in parts");
            }
            Self::CapabilityWithoutStart => "a capability without START",
            Self::Truncated(len) => {
                return write!(f, "len is {len}: a header alone is {HEADER_LEN}");
            }
            Self::CapabilityLength(len) => {
                return write!(f, "cap_len is {len}: more than is left of the frame");
            }
            Self::NotZstd => "COMP, but the payload is not exactly one frame of zstd",
            Self::Inflates(most) => {
                return write!(f, "the payload inflates to, or needs, more than {most} bytes");
            }
            Self::Ratio(most) => {
                return write!(
                    f,
                    "the payload inflates to more than {most} bytes, which is too much for what \
                     was sent: send it as it is"
                );
            }
            Self::Kind => "exactly one of REQ, RESP and EVENT has to be set",
            Self::AnswerFromClient => "RESP from a client: it can only ask",
            Self::RequestFromServer => "REQ from a service: it can only answer",
            Self::SecondStart => "START a second time",
            Self::EndWithoutStart => "END without START",
            Self::AfterEnd => "a frame after END",
            Self::EndWithinParts => "END before the request in parts is complete",
            Self::CorrIdInUse => "a request with this corr_id is not answered yet",
            Self::SecondInParts => "a second request in parts before the first is complete",
            Self::PartFlags => "START, END or HELLO on a part, or START and END on an answer",
            Self::PartApp => "another app_proto_id than in the parts before",
            Self::NotAsked => "an answer to what was not asked",
            Self::NotBegun => "a part or the end of an answer without its begin",
            Self::NotEnded => "a whole answer amid the parts of one",
            Self::Code(code) => return write!(f, "code {code} where it means nothing"),
            Self::PartTooLarge(len) => {
                return write!(f, "a part of {len} bytes: at most {CHUNK}");
            }
        };
        f.write_str(text)
    }
}

impl std::error::Error for Malformed {}

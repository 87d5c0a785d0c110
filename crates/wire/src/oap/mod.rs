//! Frames of OAP/1: how they are written and read, and which may follow which. Pure: bytes come
//! from whoever has a connection. Invariants: a header is checked before anything is kept of what
//! it announces, and nothing here grows beyond a frame, or what a frame may inflate to.

mod answers;
mod compress;
mod decode;
mod flags;
mod frame;
mod header;
mod hello;
mod malformed;
pub mod ops;
mod requests;

pub use answers::{Answers, Piece};
pub use compress::{deflate, inflate, inflates_to, most_inflated};
pub use decode::Decoder;
pub use flags::Flags;
pub use frame::{Begun, Frame, TooLarge, spread};
pub use header::{
    APP_HELLO, APP_JSON, APP_PROTO, CHUNK, HEADER_LEN, Header, MAX_FRAME, MAX_INFLATED,
    MAX_INFLIGHT, MAX_PAYLOAD, VERSION,
};
pub use hello::{Hello, HelloAnswer};
pub use malformed::{Fault, Malformed};
pub use requests::{Requests, Step};

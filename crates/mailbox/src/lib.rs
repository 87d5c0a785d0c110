//! Durable, at-least-once message queues with explicit acknowledgement: one contract over any
//! home.

mod abilities;
mod address;
mod backend;
pub mod backends;
#[cfg(feature = "blocking")]
pub mod blocking;
mod codec;
mod contents;
mod error;
mod home;
mod id;
mod mailbox;
pub mod main_loop;
mod message;
mod name;
mod open;
mod options;
pub mod resolver;
pub mod testing;
mod timestamp;

pub use abilities::Abilities;
pub use address::Address;
pub use backend::{
    Backend, Death, Delivery, Letter, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
pub use codec::{Codec, Json, Raw};
pub use error::{Error, ErrorKind, Result, Retry};
pub use home::clock::Clock;
pub use id::{MessageId, ReceiptHandle};
pub use mailbox::Mailbox;
pub use mailbox_core::{DeadReason, LateSettle, Phase, Policy, Retention, Totals, Verdict, limits};
pub use message::{Message, Peeked};
pub use name::Name;
pub use options::{NackOptions, ReceiveOptions, ReplyTo, SendOptions};
pub use resolver::Resolver;
pub use timestamp::Timestamp;

//! The queue behind every mailbox, as a pure state machine.
//!
//! Nothing here reads a clock, draws a random number, touches a file or awaits. The driver (a
//! *home*, in the `mailbox` crate) asks a question with the current time, gets back an [`Event`]
//! or a [`Refusal`], makes the event durable in whatever way it has, and applies it:
//!
//! ```
//! use std::time::Duration;
//! use mailbox_core::{Draft, Id, Policy, Queue, Sending, Time, Verdict};
//!
//! let mut queue = Queue::new(Policy::default(), 0);
//! let now = Time::ZERO;
//! let Sending::New(sent) = queue.decide_send(now, Draft::new(Id(7), "hello")).unwrap() else {
//!     unreachable!("no idempotency key was given")
//! };
//! queue.apply(sent);
//!
//! let delivered = queue.decide_receive(now, Duration::from_secs(30)).unwrap().unwrap();
//! let receipt = delivered.receipt().unwrap();
//! queue.apply(delivered);
//!
//! let acknowledged = queue.decide_settle(now, receipt, Verdict::Acknowledge).unwrap();
//! queue.apply(acknowledged);
//! assert_eq!(queue.stats(now).live(), 0);
//! ```
//!
//! Three rules hold everywhere:
//!
//! * `decide_*` takes `&self` and changes nothing; [`Queue::apply`] is total on every event that
//!   a `decide_*` of the same state returned. Replaying the events gives the same queue.
//! * Time is a comparison. A message has one `due`; it is receivable when `due <= now`. Delay,
//!   lease and nack only set `due`, so nothing has to be swept when a deadline passes.
//! * Every lease has its own [`LeaseId`], never reused, so a stale receipt can never settle
//!   somebody else's delivery.

mod dedup;
mod entry;
mod event;
mod groups;
mod heap;
mod ids;
mod keepsake;
pub mod limits;
mod line;
mod list;
mod policy;
mod queue;
mod refusal;
mod slab;
mod snapshot;
mod stats;
mod time;

pub use dedup::{Fingerprint, Idempotency};
pub use entry::{DeadLetter, Phase, View};
pub use event::{DeadReason, Draft, Event, Sending, Verdict};
pub use ids::{Id, Key, LeaseId, Receipt};
pub use keepsake::{Keepsake, Standing};
pub use policy::{LateSettle, Policy, Retention};
pub use queue::{Freed, Queue, Replayed};
pub use refusal::{Refusal, Stale};
pub use snapshot::Snapshot;
pub use stats::{Stats, Totals};
pub use time::Time;

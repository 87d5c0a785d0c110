//! Doubles for tests of code that uses mailboxes, and a clock that is moved by hand.
//!
//! | Double | What it does |
//! |---|---|
//! | [`NullMailbox`] | drops what is sent, receives nothing |
//! | [`CollectingMailbox`] | remembers what was sent, in order |
//! | [`FakeMailbox`] | everything, on a [`ManualClock`], and it fails when told to |
//! | [`FakeResolver`] | resolves all to [`CollectingMailbox`]es, or fails when told to |
//!
//! Each mailbox among them holds an ordinary [`Mailbox`](crate::Mailbox) and derefs to it, so the
//! code under test does not know. It can be given as `reply_to`, and is found by its identifier, as
//! any mailbox in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> mailbox::Result<()> {
//! use mailbox::testing::CollectingMailbox;
//! use mailbox::{Mailbox, Result};
//!
//! async fn greet(guests: &Mailbox<String>) -> Result<()> {
//!     guests.send("welcome".to_owned()).await?;
//!     Ok(())
//! }
//!
//! let guests = CollectingMailbox::new("guests")?;
//! greet(&guests).await?;
//! assert_eq!(guests.sent()?, ["welcome"]);
//! # Ok(()) }
//! ```

mod collecting;
mod fake;
mod log;
mod null;
mod resolver;
mod stand_in;

pub use crate::home::clock::ManualClock;
pub use collecting::{Collected, CollectingMailbox};
pub use fake::FakeMailbox;
pub use null::NullMailbox;
pub use resolver::FakeResolver;

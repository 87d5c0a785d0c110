//! The same mailbox without async: for programs, and threads, that have no runtime.
//!
//! A thin wrapper: every method has the name, the meaning and the errors of the async one, and
//! calls it. The calling thread waits, parked; one thread of the process, started at first use,
//! keeps the time for all.
//!
//! ```
//! use std::time::Duration;
//! use mailbox::ReceiveOptions;
//! use mailbox::blocking::Mailbox;
//!
//! # fn main() -> mailbox::Result<()> {
//! let jobs: Mailbox<String> = Mailbox::memory("jobs")?;
//! let producer = std::thread::spawn({
//!     let jobs = jobs.clone();
//!     move || jobs.send("tidy up".to_owned())
//! });
//! let patient = ReceiveOptions::new().with_wait(Duration::from_secs(20));
//! for message in jobs.receive_with(patient)? {
//!     assert_eq!(message.body()?, "tidy up");
//!     message.acknowledge()?;
//! }
//! # producer.join().expect("it does not panic")?;
//! # Ok(()) }
//! ```
//!
//! # In async code
//! A thread that runs async tasks must not be blocked, so a call from a tokio task gives
//! `Unsupported`: use [`Mailbox::as_async`] there, or call from `tokio::task::spawn_blocking`.
//! Tasks of other runtimes, and those in `tokio::task::unconstrained`, cannot be recognised: a call
//! from one blocks its thread.

mod construct;
mod mailbox;
mod message;
mod runtime;

pub use mailbox::Mailbox;
pub use message::Message;

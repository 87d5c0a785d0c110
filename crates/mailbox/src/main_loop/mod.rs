//! Workers and their clients (P1 to P6): a [`MainLoop`] receives requests, has them handled and
//! replies; a [`Client`] sends requests and awaits its own replies.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use mailbox::main_loop::{Client, Context, HandlerFailure, LoopEnd, LoopOptions, MainLoop};
//! use mailbox::Mailbox;
//!
//! let requests = Mailbox::memory("requests")?;
//! let worker = MainLoop::new(requests.clone(), |words: Vec<String>, context: Context| async move {
//!     context.spend(words.len() as u64)?; // fails beyond the request's budget, if it has one
//!     Ok::<_, HandlerFailure>(words.join(" "))
//! })
//! .with_options(LoopOptions::new().with_concurrency(4))?;
//! let running = tokio::spawn(worker.run());
//!
//! let client = Client::private(requests, Mailbox::memory("replies")?);
//! let words = vec!["hello".to_owned(), "world".to_owned()];
//! assert_eq!(client.call(words, Duration::from_secs(5)).await?, "hello world");
//!
//! worker.stop_handle().stop();
//! assert_eq!(running.await?, LoopEnd::Stopped);
//! assert_eq!(worker.health().handled, 1);
//! # Ok(()) }
//! ```
//!
//! # What happens when
//!
//! | | |
//! |---|---|
//! | the handler gives an output | it is replied, then the request is acknowledged |
//! | the handler fails or panics | an error is replied, then the request is acknowledged |
//! | the deadline has passed | an error is replied; the handler does not run, or is cut off |
//! | the budget of time is used up | the handler is cut off, an error is replied |
//! | the output cannot be encoded or is too large | an error is replied instead |
//! | the reply cannot be sent | the request is nacked, with growing [`Backoff`] |
//! | there is nobody to reply to | it is logged, and the request acknowledged |
//! | the lease is lost | the handler is told; nothing is replied, nothing settled |
//! | the message is no request | it becomes a dead letter, reason `decode` |
//! | the loop is stopped | it drains: what does not finish in time is nacked |
//! | the process dies | requests come back when their visibility timeout is over |
//!
//! Deliveries are at least once. A lost lease means that the request is, or will be, delivered to
//! somebody else, who replies: the result of the one who lost it is dropped, because its reply
//! would be a second answer. A second answer is still possible (a reply is sent and the process
//! dies before it acknowledges), so a client must not mind one; [`Client`] does not.

mod client;
mod context;
mod flight;
mod group;
mod handler;
mod health;
mod keep_alive;
mod options;
mod pace;
mod request;
mod result;
mod runner;
mod stop;

pub use client::{CallError, CallOptions, Client, ClientOptions, ClientStats};
pub use context::{BudgetExceeded, Context};
pub use group::LoopGroup;
pub use handler::Handler;
pub use health::Health;
pub use options::{Backoff, LoopOptions};
pub use request::{Budget, MainLoopRequest};
pub use result::{FailureKind, HandlerFailure, MainLoopResult};
pub use runner::{LoopEnd, MainLoop};
pub use stop::StopHandle;
pub use uuid::Uuid;

//! Message queues with at-least-once delivery and explicit acknowledgement: what is not
//! acknowledged in time is delivered again. One contract holds whatever keeps the messages, so that
//! a program written for memory moves to another home by changing one line.
//!
//! # Quickstart
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> mailbox::Result<()> {
//! use mailbox::Mailbox;
//!
//! let jobs: Mailbox<String> = Mailbox::memory("jobs")?;
//! jobs.send("resize cat.png".to_owned()).await?;
//!
//! for message in jobs.receive().await? {
//!     assert_eq!(message.body()?, "resize cat.png");
//!     message.nack().await?; // not done: give it back
//! }
//! for message in jobs.receive().await? {
//!     assert_eq!(message.delivery_count(), 2);
//!     message.acknowledge().await?; // done: delete it
//! }
//! assert_eq!(jobs.approximate_count().await?, 0);
//! # Ok(()) }
//! ```
//!
//! A received message is invisible to others for its visibility timeout, 30 s unless
//! [`ReceiveOptions`] say otherwise. Settle it before that: [`acknowledge`](Message::acknowledge),
//! [`nack`](Message::nack) or [`reject`](Message::reject). A message that is dropped unsettled, by
//! a worker that crashes for example, comes back by itself.
//!
//! [`receive`](Mailbox::receive) takes one message and does not wait. A consumer that waits, and
//! takes several at once:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> mailbox::Result<()> {
//! # use std::time::Duration;
//! # use mailbox::{Mailbox, ReceiveOptions};
//! # let jobs: Mailbox<String> = Mailbox::memory("jobs")?;
//! # jobs.send("resize cat.png".to_owned()).await?;
//! let several = ReceiveOptions::new().with_max_messages(10).with_wait(Duration::from_secs(20));
//! loop {
//!     for message in jobs.receive_with(several.clone()).await? {
//!         println!("working on {}", message.body()?);
//!         message.acknowledge().await?;
//!     }
//! #   break;
//! }
//! # let stats = jobs.stats().await?;
//! # println!("{} ready, {} dead, kept by {}", stats.ready, stats.dead, stats.durability);
//! # assert_eq!(stats.live(), 0);
//! # Ok(()) }
//! ```
//!
//! # Another home
//!
//! The home is the line that makes the mailbox; everything else stays.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> mailbox::Result<()> {
//! use mailbox::{Mailbox, Result};
//!
//! async fn send_and_work(jobs: Mailbox<String>) -> Result<()> {
//!     jobs.send("resize cat.png".to_owned()).await?;
//!     for message in jobs.receive().await? {
//!         message.acknowledge().await?;
//!     }
//!     assert_eq!(jobs.approximate_count().await?, 0);
//!     Ok(())
//! }
//!
//! send_and_work(Mailbox::memory("jobs")?).await?; // encoded, as in production
//! send_and_work(Mailbox::local("jobs")?).await?; // as it is: no encoding, no serde
//! send_and_work(Mailbox::open("memory://jobs").await?).await?; // shared in this process
//! # Ok(()) }
//! ```
//!
//! With the feature `journal` messages stay on disk, in files of this process's own. A send that
//! has returned survives a power cut.
//!
//! ```
//! # #[cfg(feature = "journal")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> mailbox::Result<()> {
//! # let dir = tempfile::tempdir().expect("a temporary directory");
//! # let path = dir.path().join("data");
//! use mailbox::backends::journal::JournalBackend;
//! use mailbox::{Backend, Mailbox};
//!
//! let journal = JournalBackend::open(&path).await?; // a directory, made if it is not there
//! let jobs: Mailbox<String> = Mailbox::new(journal.clone(), "jobs".parse()?);
//! jobs.send("resize cat.png".to_owned()).await?; // on the disk when this returns
//! journal.close().await?; // or crash: what was sent is there all the same
//!
//! let journal = JournalBackend::open(&path).await?;
//! let jobs: Mailbox<String> = Mailbox::new(journal, "jobs".parse()?);
//! for message in jobs.receive().await? {
//!     assert_eq!(message.body()?, "resize cat.png");
//!     message.acknowledge().await?;
//! }
//! # Ok(()) }
//! # #[cfg(not(feature = "journal"))]
//! # fn main() {}
//! ```
//!
//! `Mailbox::open("journal:data/jobs")` is the mailbox `jobs` in the journal in the directory
//! `data`; `journal:/data/jobs` and `journal:///data/jobs` are in the directory `/data`. Everybody
//! in this process who opens it by address shares it; one that was opened with
//! `JournalBackend::open` cannot be opened by address at the same time. Two options can be said
//! behind a `?`, joined by `&`:
//!
//! | Option | What it does |
//! |---|---|
//! | `durability=fsync` | a send waits for the disk; the default |
//! | `durability=os-buffered` | it waits for the operating system: no help against a power cut |
//! | `ack=durable` | settling waits as a send does; the default |
//! | `ack=lazy` | ack, nack and extend do not: a crash may bring back what was just acknowledged |
//!
//! [`Stats::durability`] shows which [`Durability`] a mailbox has.
//!
//! To stop, [`close`](Mailbox::close) each mailbox that was opened by address (the last one closes
//! the journal), or close the backend: the next open is quick then. Without that nothing that was
//! promised is lost; the next open reads the whole log.
//!
//! # Messages in folders
//!
//! `Mailbox::open("dir:inbox/jobs")` is the folder `inbox/jobs`: a message is a file, any number of
//! processes take part, and so do scripts with `mv` alone (`docs/directory-format.md`). Messages
//! stay as in a journal, with the same options. Linux only.
//!
//! # Messages on Redis
//!
//! With the feature `redis`, `Mailbox::open("redis://host:6379/jobs")` is a mailbox on Redis or
//! Valkey, for any number of machines: one server, a cluster (found out by itself, or
//! `redis+cluster:`), or whichever server sentinels say (`redis+sentinel:`). What a send waits for
//! is said behind a `?`:
//!
//! | Option | A send waits for |
//! |---|---|
//! | `durability=async` | the master; the default. A failover loses what was not copied yet |
//! | `durability=replicated` | all replicas of the master |
//! | `durability=fsync` | the master's disk |
//!
//! Others are in the module `backends::redis`. A mailbox that nobody uses for three days is deleted
//! with its messages unless `ttl=0` is said, as others who share the layout have it.
//!
//! # Messages of a service
//!
//! With the feature `remote`, `Mailbox::open("http://host:7600/jobs")` is a mailbox of a service
//! (`mailbox serve`). The capability is in the file that `?cap_file=PATH` names, or in the
//! environment variable `MAILBOX_CAP`; `ca=PATH` names certificates to trust with `https:`.
//! With the feature `oap` a service is also at `oap://host:7601/jobs` or `oaps:`, with the feature
//! `grpc` at `grpc://host:7600/jobs` or `grpcs:`. All of them lead to the same mailboxes. OAP/1 is
//! the one for many messages: calls share a few connections, and what many tasks send or
//! acknowledge at the same time goes out together.
//!
//! Those are the homes of today. Addresses of the planned one (`sqs:`) are understood; opening one
//! gives [`ErrorKind::Unsupported`].
//!
//! # What a home can do
//!
//! Homes differ in their [`Abilities`]; asking for what one lacks is an error, never a surprise.
//!
//! | | [`memory`](Mailbox::memory) | [`local`](Mailbox::local) | `journal` | `dir` | `redis` |
//! |---|---|---|---|---|---|
//! | `durable` | no | no | yes | yes | yes |
//! | `ordered` | yes | yes | yes | yes | yes |
//! | `exact_count` | yes | yes | yes | yes | yes |
//! | `totals` | yes | yes | yes | no | yes |
//! | `idempotency` | yes | no | yes | yes | yes |
//! | `groups` | yes | yes | yes | no | yes |
//! | `undo` | yes | yes | yes | yes | yes |
//! | `strict_deadlines` | yes | yes | yes | yes | yes |
//! | `resolution` | 50 ms | 50 ms | 50 ms | 1000 ms | 1000 ms |
//! | `max_messages` | 256 | 256 | 256 | 256 | 256 |
//! | `max_payload` | 1 MiB | not measured | 1 MiB | 1 MiB | 1 MiB |
//! | `max_delay` | 12 h | 12 h | 12 h | 12 h | 12 h |
//!
//! `max_payload` can be configured, but for `local`.
//!
//! # Where to go from here
//!
//! | For | See |
//! |---|---|
//! | sending, receiving, counting, dead letters | [`Mailbox`] |
//! | settling, replying | [`Message`] |
//! | workers and their clients | [`main_loop`] |
//! | where replies go | [`resolver`] |
//! | test doubles, and a clock that is moved by hand | [`testing`] |
//! | what went wrong, and whether to try again | [`Error`], [`Retry`] |
//! | keeping messages on disk | the module `backends::journal`, with the feature `journal` |
//! | keeping messages in folders, for scripts too | the module `backends::directory` |
//! | keeping messages on Redis | the module `backends::redis`, with the feature `redis` |
//! | using a service | the module `backends::remote`, with the feature `remote` |
//! | keeping messages somewhere else | [`Backend`] |
//!
//! # Features
//!
//! | Feature | Default | What it adds |
//! |---|---|---|
//! | `blocking` | no | the module `blocking`: the same mailbox without async |
//! | `directory` | yes | the module `backends::directory`: mailboxes in folders, on Linux |
//! | `grpc` | no | services over gRPC, with `remote` |
//! | `journal` | no | the module `backends::journal`: mailboxes on disk, in this process |
//! | `oap` | no | services over OAP/1, with `remote` |
//! | `redis` | no | the module `backends::redis`: mailboxes on Redis or Valkey |
//! | `planted` | no | bugs for the backends' own tests to find; never for real use |
//! | `remote` | no | the module `backends::remote`: mailboxes of a service, over HTTP |
//!
//! # The contract
//!
//! `docs/contract.md` in the repository says what every mailbox promises, in numbered clauses. The
//! numbers in this documentation (D1, V4, ...) are those; each clause has cases that run on every
//! home. Delivery is at least once: a message can come twice, so make consumers idempotent.

mod abilities;
mod address;
mod backend;
pub mod backends;
#[cfg(feature = "blocking")]
pub mod blocking;
mod codec;
mod contents;
mod durability;
mod error;
mod figure;
mod home;
mod id;
mod mailbox;
pub mod main_loop;
mod message;
mod name;
mod open;
mod options;
pub mod resolver;
mod status;
pub mod testing;
mod timestamp;

pub use abilities::Abilities;
pub use address::Address;
pub use backend::{
    Backend, Death, Delivery, Letter, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
pub use codec::{Codec, Json, Raw};
pub use durability::{Durability, Settling};
pub use error::{Error, ErrorKind, Result, Retry};
pub use figure::Figure;
pub use home::clock::Clock;
pub use id::{MessageId, ReceiptHandle};
pub use mailbox::Mailbox;
pub use mailbox_core::{DeadReason, LateSettle, Phase, Policy, Retention, Totals, Verdict, limits};
pub use main_loop::{Client, LoopGroup, LoopOptions, MainLoop, MainLoopRequest, MainLoopResult};
pub use message::{Message, Peeked};
pub use name::Name;
pub use open::{open_backend, open_store};
pub use options::{NackOptions, ReceiveOptions, ReplyTo, SendOptions};
pub use resolver::Resolver;
pub use status::Status;
pub use timestamp::Timestamp;

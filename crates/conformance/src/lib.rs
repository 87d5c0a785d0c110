//! The contract as executable cases.
//!
//! A [`Case`] cites a clause of `docs/contract.md` and runs in a [`World`]: a fresh, isolated
//! namespace of one [`Subject`]. A subject is a backend, a decorator or a door to one, and runs
//! every case that applies to it. To add a case, write a function and name it in the table of its
//! file; to add a subject, write the ten lines that open it and name it in [`subjects::all`], or in
//! [`subjects::elsewhere`] if it is built, and therefore run, by another crate.
//! Nothing else is registered anywhere.
//!
//! A case that does not apply says why, and `docs/conformance.md` lists those reasons and how many
//! cases run on each subject. The list is compared in every run, so a case cannot stop running
//! without somebody noticing.
//!
//! [`model`] is the second half: random sequences of commands, run on a subject and on
//! [`mailbox_core::Queue`] at the same virtual times, must be observed alike.

mod blocking;
pub mod case;
pub mod cases;
mod command_line;
pub mod fault;
mod journal;
pub mod model;
mod needs;
pub mod peer;
mod probe;
mod redis;
pub mod report;
pub mod run;
mod service;
mod steps;
mod subject;
pub mod subjects;
mod words;
mod world;

pub use case::{Case, Outcome};
pub use probe::Probe;
pub use subject::{Home, Keepsake, Opened, Restart, Setup, Subject, SubjectInfo};
pub use world::{Time, World};

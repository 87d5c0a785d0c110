//! Mailboxes in folders against what the file system allows: the same files written, synced and
//! renamed by nobody but a loop. Everything of one run is on one file system, the journal's.

pub(crate) mod backlog;
mod bare_files;
pub(crate) mod child;
mod ours;
pub(crate) mod sends;
pub(crate) mod waking;

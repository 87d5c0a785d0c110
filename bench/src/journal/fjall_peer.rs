//! fjall as a log: one keyspace, one write batch for each batch, persisted with `fdatasync`. As it
//! comes, except for compression, which the payloads would not gain from.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::journal::grouped::Store;

/// How long it may go on flushing and compacting after a round.
const REST_TIMEOUT: Duration = Duration::from_secs(10);
const REST_STEP: Duration = Duration::from_millis(20);

/// A database and the next key.
pub(crate) struct Fjall {
    database: Database,
    messages: Keyspace,
    sequence: u64,
}

impl Fjall {
    /// In this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let database = Database::builder(folder.join("peer.fjall")).open().expect("fjall opens");
        let messages = database
            .keyspace("messages", KeyspaceCreateOptions::default)
            .expect("fjall makes a keyspace");
        Self { database, messages, sequence: 0 }
    }
}

impl Store for Fjall {
    fn commit(&mut self, bodies: &[Bytes]) {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for body in bodies {
            self.sequence += 1;
            batch.insert(&self.messages, self.sequence.to_be_bytes(), &body[..]);
        }
        batch.commit().expect("fjall commits");
    }

    fn clear(&mut self) {
        self.messages.clear().expect("fjall clears a keyspace");
        // Its threads would otherwise work on in somebody else's round.
        let start = Instant::now();
        let unfinished =
            || self.database.outstanding_flushes() + self.database.active_compactions();
        while unfinished() > 0 && start.elapsed() < REST_TIMEOUT {
            std::thread::sleep(REST_STEP);
        }
    }
}

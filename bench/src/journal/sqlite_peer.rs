//! SQLite as a log: one table, one transaction for each batch, write-ahead log, synced with every
//! commit.

use std::path::Path;

use bytes::Bytes;
use rusqlite::Connection;

use crate::journal::grouped::Store;

const SETUP: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA wal_autocheckpoint = 4000;
    PRAGMA cache_size = -65536;
    CREATE TABLE message (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
";

/// A connection and the next number.
#[derive(Debug)]
pub(crate) struct Sqlite {
    connection: Connection,
    sequence: i64,
}

impl Sqlite {
    /// In this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let connection = Connection::open(folder.join("peer.sqlite")).expect("SQLite opens");
        connection.execute_batch(SETUP).expect("SQLite knows its own settings");
        Self { connection, sequence: 0 }
    }
}

impl Store for Sqlite {
    fn commit(&mut self, bodies: &[Bytes]) {
        let transaction = self.connection.transaction().expect("nobody else has it open");
        {
            let insert = "INSERT INTO message (seq, body) VALUES (?1, ?2)";
            let mut insert = transaction.prepare_cached(insert).expect("there is such a table");
            for body in bodies {
                self.sequence += 1;
                insert.execute((self.sequence, &body[..])).expect("a new number");
            }
        }
        transaction.commit().expect("SQLite commits");
    }

    fn clear(&mut self) {
        let clear = "DELETE FROM message; PRAGMA wal_checkpoint(RESTART);";
        self.connection.execute_batch(clear).expect("nobody else has it open");
    }
}

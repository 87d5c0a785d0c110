//! The bugs of the journal that can be switched on, to see whether the tests notice.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A send is answered before its batch is on the disk.
    AnswerBeforeSync,
    /// A message is handed out before its own record is on the disk.
    DeliverBeforeSync,
    /// The name of a new segment is not made durable.
    NoDirSync,
    /// A new segment is used before its own bytes are durable.
    NoSegmentSync,
    /// Checksums of records are not looked at.
    NoChecksum,
    /// Every segment has the same salt, so that old records in a recycled one look like new ones.
    NoSalt,
    /// Leases go on in the epoch of the last open.
    ReusedLease,
    /// Whatever cannot be read is taken for the end of the log.
    DamageIsEnd,
    /// After a failed sync the next batch is written as if nothing had happened.
    SyncFailureIgnored,
    /// What a recovery has read is not written again, so that it may be in the page cache only.
    PageCacheTrusted,
    /// An old segment goes away before what was moved out of it is on the disk.
    TrimBeforeSync,
    /// Sends may use the space that is reserved for settling.
    NoReserve,
    /// Idempotency keys are not restored.
    KeysForgotten,
    /// Compaction forgets idempotency keys of messages that are gone.
    KeysNotMoved,
    /// Acknowledgements are not written.
    AckNotWritten,
    /// Compaction writes a message as if it had never been delivered.
    StateNotMoved,
    /// Compaction forgets the rules of mailboxes.
    RulesNotMoved,
    /// The index of a clean stop is used although the log went on after it.
    StaleIndex,
    /// Nobody looks whether somebody else has the journal open.
    NoLock,
    /// The next batch is written while the one before it is not yet on the disk.
    EarlyBatch,
}

/// The bug that is switched on: at most one.
pub type Planted = crate::backends::planted::Planted<Bug>;

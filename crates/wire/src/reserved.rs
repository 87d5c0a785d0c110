//! What a sender says beside payload and attributes, and no store has a place for: kept as
//! attributes under these names, and fields of their own on the wire.

/// The correlation id that the sender gave.
pub const CORR_ID: &str = "mailbox.corr_id";
/// The sender's own signature.
pub const SIG: &str = "mailbox.sig";
/// Which shard the sender asked for.
pub const PARTITION: &str = "mailbox.partition";
/// W3C trace context of the sender.
pub const TRACEPARENT: &str = "mailbox.traceparent";

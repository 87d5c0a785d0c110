//! What requests and answers look like in JSON. Invariant: a request with a field that is not known
//! is refused; answers may grow.

/// Shows a few fields for debugging: whoever has a receipt handle can settle, and what is in a
/// message is nobody's business but the consumer's.
macro_rules! hide_secrets {
    ($type:ident, $($field:ident),*) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}

mod capabilities;
mod dead;
mod envelope;
mod problem;
mod receive;
mod send;
mod settle;
mod topics;

pub use capabilities::{MintRequest, Minted, RevokeRequest, Revoked, RotateRequest, Rotated};
pub use dead::{DeadRequest, Deleted, Reprocessed};
pub use envelope::{Death, Envelope, Record, Records};
pub use problem::Problem;
pub use receive::{ReceiveRequest, Received};
pub use send::{BatchMessage, BatchResult, SendBatchRequest, SendRequest, Sent, SentBatch};
pub use settle::{
    AckRequest, ExtendRequest, NackRequest, Ok, SettleBatchRequest, SettleItem, SettleOp,
    SettleResult, SettledBatch,
};
pub use topics::{
    Abilities, LookUpRequest, Policy, PolicyChange, Purged, Removed, Retention, RetentionChange,
    Stats, Topic, TopicEntry, Topics, Totals,
};

use serde::{Deserialize, Deserializer};

/// Tells a field that is `null` from one that is not there.
fn stated<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

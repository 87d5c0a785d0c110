//! Dead letters: put back in line, or deleted. Listing them gives [`Records`](super::Records).

use serde::{Deserialize, Serialize};

use crate::texts::maybe_texts;

/// `POST /v1/dlq/reprocess` and `POST /v1/dlq/delete`: which dead letters. All of the mailbox
/// unless one of the three says otherwise; at most one may.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadRequest {
    /// The mailbox.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 80))]
    pub topic: String,
    /// The oldest, at most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// These.
    #[serde(default, deserialize_with = "maybe_texts", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 256))]
    pub msg_ids: Option<Vec<String>>,
    /// All that died of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How many are back in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reprocessed {
    /// These were put back.
    pub reprocessed: u64,
    /// Dead letters that are still there.
    pub remaining: u64,
}

/// How many were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deleted {
    /// These are gone.
    pub deleted: u64,
    /// Dead letters that are still there.
    pub remaining: u64,
}

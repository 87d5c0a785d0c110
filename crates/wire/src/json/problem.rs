//! What went wrong, the same for every call.

use serde::{Deserialize, Serialize};

/// Why a call did nothing, or what is known about it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// One word for programs, such as `E_SATURATED`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Finds this call in the logs.
    #[serde(default)]
    pub corr_id: String,
    /// The contract's name of what went wrong, such as `mailbox_full`: finer than the code.
    pub kind: String,
    /// The same call may succeed after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Why a capability was not enough, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The argument that was out of bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The mailbox it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The message that was there already, where a duplicate is a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msg_id: Option<String>,
}

//! Making capabilities, and taking them back.

use serde::{Deserialize, Serialize};

use crate::texts::texts;

/// `POST /v1/caps/mint`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MintRequest {
    /// What it allows: `send`, `recv`, `ack`, `nack`, `admin`.
    #[serde(deserialize_with = "texts")]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 5))]
    pub ops: Vec<String>,
    /// Mailboxes by name, or by how their names begin: `jobs`, `tenant-a:*`. All if there are none.
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 32))]
    pub topics: Vec<String>,
    /// For how long; the service's longest if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
    /// Other caveats, as they are written: `rate = 100/s`.
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 32))]
    pub caveats: Vec<String>,
}

/// A new capability.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Minted {
    /// The capability itself: whoever has it may use it.
    pub capability: String,
    /// Its id, by which it can be taken back.
    pub token_id: String,
    /// Up to when: RFC 3339.
    pub expires_at: String,
}

impl std::fmt::Debug for Minted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Minted").field("token_id", &self.token_id).finish_non_exhaustive()
    }
}

/// `POST /v1/caps/revoke`: by id, or the capability itself.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevokeRequest {
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// The capability, or one made from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
}

impl std::fmt::Debug for RevokeRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RevokeRequest").field("token_id", &self.token_id).finish_non_exhaustive()
    }
}

/// What was taken back; on disk by the time this is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// The id that is worth nothing from now on.
    pub token_id: String,
}

/// `POST /v1/caps/rotate`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotateRequest {
    /// For how long capabilities of the old key are still good; the service's default if there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u64>,
}

/// A new root key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rotated {
    /// The id of the new key.
    pub kid: String,
    /// Up to when the old key is good: RFC 3339.
    pub previous_until: Option<String>,
    /// The operator's new capability, for the operator of a service that keeps nothing on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_capability: Option<String>,
}

hide_secrets!(Rotated, kid, previous_until);

//! Making capabilities, and taking them back.

use super::v1;
use crate::json;

mirror! {
    json::MintRequest = MintCapabilityRequest { ops, topics, ttl_s, caveats }
    json::Minted = MintCapabilityResponse { capability, token_id, expires_at }
    json::RevokeRequest = RevokeCapabilityRequest { token_id, capability }
    json::Revoked = RevokeCapabilityResponse { token_id }
    json::RotateRequest = RotateKeyRequest { grace_s }
    json::Rotated = RotateKeyResponse { kid, previous_until, operator_capability }
}

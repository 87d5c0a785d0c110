//! Capabilities of a service: made, taken back, and their key replaced.

use mailbox_wire::json::{MintRequest, Minted, RevokeRequest, Revoked, RotateRequest, Rotated};

use super::RemoteBackend;
use super::calls::{Again, Call};
use crate::error::Result;

impl RemoteBackend {
    /// Makes a capability.
    ///
    /// # Errors
    /// `Forbidden` unless the own capability is for `admin` on all mailboxes; `InvalidParameter`;
    /// `Connection`.
    ///
    /// # Cancel safety
    /// One may have been made that nobody has.
    pub async fn mint(&self, request: &MintRequest) -> Result<Minted> {
        self.inner.calls.make(Call::post("/v1/caps/mint", request, Again::Yes)?).await
    }

    /// Takes back a capability and all that were made from it.
    ///
    /// # Errors
    /// As [`RemoteBackend::mint`].
    ///
    /// # Cancel safety
    /// It may have taken effect.
    pub async fn revoke(&self, request: &RevokeRequest) -> Result<Revoked> {
        self.inner.calls.make(Call::post("/v1/caps/revoke", request, Again::Yes)?).await
    }

    /// Replaces the root key.
    ///
    /// # Errors
    /// As [`RemoteBackend::mint`].
    ///
    /// # Cancel safety
    /// It may have taken effect.
    pub async fn rotate(&self, request: &RotateRequest) -> Result<Rotated> {
        self.inner.calls.make(Call::post("/v1/caps/rotate", request, Again::No)?).await
    }
}

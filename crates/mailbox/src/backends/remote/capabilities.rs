//! Capabilities of a service: made, taken back, and their key replaced.

use mailbox_wire::call::Request;
use mailbox_wire::json::{MintRequest, Minted, RevokeRequest, Revoked, RotateRequest, Rotated};

use super::RemoteBackend;
use super::calls::Again;
use crate::error::Result;

impl RemoteBackend {
    /// Makes a capability.
    ///
    /// # Errors
    /// `Forbidden` unless the own capability is for `admin` on all mailboxes; `InvalidParameter`;
    /// `Connection`; `Closed`.
    ///
    /// # Cancel safety
    /// One may have been made that nobody has.
    pub async fn mint(&self, request: &MintRequest) -> Result<Minted> {
        self.inner.begin_any().await?;
        // Not again: there would be one that nobody has and nobody takes back.
        self.inner.calls.ask(&Request::Mint(request.clone()), Again::No).await
    }

    /// Takes back a capability and all that were made from it.
    ///
    /// # Errors
    /// As [`RemoteBackend::mint`].
    ///
    /// # Cancel safety
    /// It may have taken effect.
    pub async fn revoke(&self, request: &RevokeRequest) -> Result<Revoked> {
        self.inner.begin_any().await?;
        self.inner.calls.ask(&Request::Revoke(request.clone()), Again::Yes).await
    }

    /// Replaces the root key.
    ///
    /// # Errors
    /// As [`RemoteBackend::mint`].
    ///
    /// # Cancel safety
    /// It may have taken effect.
    pub async fn rotate(&self, request: &RotateRequest) -> Result<Rotated> {
        self.inner.begin_any().await?;
        self.inner.calls.ask(&Request::Rotate(*request), Again::No).await
    }
}

//! The secret that capabilities are minted and verified with. It is wiped when dropped, and nothing
//! shows it.

use std::fmt;

use zeroize::Zeroizing;

/// 32 secret bytes, known to the service only.
#[derive(Clone)]
pub struct RootKey(Zeroizing<[u8; Self::LEN]>);

impl RootKey {
    /// How many bytes a key has.
    pub const LEN: usize = 32;

    /// Takes a key over. Wiping the caller's own copy is the caller's.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn secret(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKey")
    }
}

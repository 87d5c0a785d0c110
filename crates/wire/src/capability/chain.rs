//! The chain of HMAC-SHA256 that binds identifier and caveats, exactly as libmacaroons makes it.
//! Tags are compared in constant time and wiped when dropped.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use super::key::RootKey;

/// Length of a tag.
pub(super) const TAG: usize = 32;

/// Every macaroon library derives its first key with this one.
const KEY_GENERATOR: &[u8] = b"macaroons-key-generator";

/// The tag up to some caveat, which is the key for the next.
pub(super) struct Tag(Zeroizing<[u8; TAG]>);

impl Tag {
    /// The tag of a macaroon without caveats.
    pub(super) fn root(key: &RootKey, identifier: &[u8]) -> Self {
        let derived = Self::keyed(KEY_GENERATOR, &[key.secret()]);
        derived.over(identifier)
    }

    /// The tag a macaroon says it has.
    pub(super) fn claimed(bytes: [u8; TAG]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The tag with one more caveat.
    pub(super) fn over(&self, caveat: &[u8]) -> Self {
        Self::keyed(self.as_bytes(), &[caveat])
    }

    /// The tag with one more third-party caveat.
    pub(super) fn over_third_party(&self, verifier: &[u8], caveat: &[u8]) -> Self {
        let (verifier, caveat) = (self.over(verifier), self.over(caveat));
        Self::keyed(self.as_bytes(), &[verifier.as_bytes(), caveat.as_bytes()])
    }

    pub(super) fn equals(&self, other: &Self) -> Choice {
        self.as_bytes().ct_eq(other.as_bytes())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn keyed(key: &[u8], parts: &[&[u8]]) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
        for part in parts {
            mac.update(part);
        }
        Self::claimed(mac.finalize().into_bytes().into())
    }
}

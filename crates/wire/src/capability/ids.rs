//! Short names inside a capability. They hold letters, digits, `_` and `-` only, so that no name
//! can end the text around it.

use std::fmt;
use std::str::FromStr;

/// A name of 1 to `MAX` of `[A-Za-z0-9_-]`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<const MAX: usize>(String);

/// Which root key a capability was minted with.
pub type KeyId = Id<32>;
/// Which capability it is, with everything narrowed from it: revoking goes by this.
pub type TokenId = Id<64>;
/// Whose mailboxes a capability is for.
pub type Tenant = Id<64>;

/// Text that is no such name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadId;

impl<const MAX: usize> Id<MAX> {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> FromStr for Id<MAX> {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let fits = (1..=MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if fits { Ok(Self(text.to_owned())) } else { Err(BadId) }
    }
}

impl<const MAX: usize> fmt::Display for Id<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX: usize> fmt::Debug for Id<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("such a name is short and made of A-Z, a-z, 0-9, _ and -")
    }
}

impl std::error::Error for BadId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_length_and_an_alphabet() {
        for good in ["a", "A-z_09", &"k".repeat(32)] {
            assert_eq!(good.parse::<KeyId>().unwrap().as_str(), good);
        }
        for bad in ["", " a", "a b", "a.b", "a\n", "é", "a,b", &"k".repeat(33)] {
            assert_eq!(bad.parse::<KeyId>(), Err(BadId), "{bad:?}");
        }
        assert!("k".repeat(64).parse::<TokenId>().is_ok());
        assert!("k".repeat(65).parse::<TokenId>().is_err());
    }
}

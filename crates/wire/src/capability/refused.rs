//! Why a capability does not allow something. A reason never quotes the capability.

use std::fmt;

/// Why it is refused: the `reason` of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// No capability was given. Only the service can tell.
    Missing,
    /// The text is no capability.
    Malformed,
    /// Nobody with the root key minted it, or the root key is gone.
    BadSignature,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// It was taken back. Only the service can tell.
    Revoked,
    /// A caveat is unknown, does not parse, or one that is needed is absent.
    Caveat,
    /// The operation is not among those allowed.
    Op,
    /// The topic is not among those allowed.
    Topic,
    /// The peer's address is not among those allowed.
    Ip,
    /// It is for another tenant.
    Tenant,
    /// The request is too large.
    Bytes,
    /// What it may do in all is used up. Only the service can tell.
    Quota,
    /// It is used too often. Only the service can tell.
    Rate,
}

impl Refused {
    /// Every reason.
    pub const ALL: [Self; 14] = [
        Self::Missing,
        Self::Malformed,
        Self::BadSignature,
        Self::Expired,
        Self::NotYet,
        Self::Revoked,
        Self::Caveat,
        Self::Op,
        Self::Topic,
        Self::Ip,
        Self::Tenant,
        Self::Bytes,
        Self::Quota,
        Self::Rate,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::BadSignature => "bad_signature",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Revoked => "revoked",
            Self::Caveat => "caveat",
            Self::Op => "op",
            Self::Topic => "topic",
            Self::Ip => "ip",
            Self::Tenant => "tenant",
            Self::Bytes => "bytes",
            Self::Quota => "quota",
            Self::Rate => "rate",
        }
    }

    /// Whether the capability is good for nothing (401), not only for this (403).
    #[must_use]
    pub const fn is_authentication(self) -> bool {
        matches!(
            self,
            Self::Missing
                | Self::Malformed
                | Self::BadSignature
                | Self::Expired
                | Self::NotYet
                | Self::Revoked
                | Self::Caveat
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "a capability is needed",
            Self::Malformed => "this is no capability",
            Self::BadSignature => "the capability was not minted here, or its key is gone",
            Self::Expired => "the capability has expired",
            Self::NotYet => "the capability is not valid yet",
            Self::Revoked => "the capability was revoked",
            Self::Caveat => "the capability has a caveat that is not understood, or lacks one",
            Self::Op => "the capability does not allow this operation",
            Self::Topic => "the capability does not allow this topic",
            Self::Ip => "the capability does not allow this address",
            Self::Tenant => "the capability is for another tenant",
            Self::Bytes => "the capability does not allow this much at once",
            Self::Quota => "the quota of the capability is used up",
            Self::Rate => "the capability is used too often",
        })
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_is_told_apart_from_authentication() {
        let scope: Vec<_> = Refused::ALL
            .into_iter()
            .filter(|reason| !reason.is_authentication())
            .map(Refused::as_str)
            .collect();
        assert_eq!(scope, ["op", "topic", "ip", "tenant", "bytes", "quota", "rate"]);
    }

    #[test]
    fn every_reason_has_a_word_and_a_sentence_of_its_own() {
        for (at, one) in Refused::ALL.into_iter().enumerate() {
            for other in &Refused::ALL[at + 1..] {
                assert_ne!(one.as_str(), other.as_str());
                assert_ne!(one.to_string(), other.to_string());
            }
        }
    }
}

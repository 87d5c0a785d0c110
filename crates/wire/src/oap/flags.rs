//! What a frame is: sixteen bits, of which eight mean something.

use std::fmt;
use std::ops::BitOr;

/// Flags of a frame. Those that mean nothing are kept, so that they can be refused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(u16);

impl Flags {
    /// A request, or its last part.
    pub const REQ: Self = Self(1);
    /// An answer, or its begin or end.
    pub const RESP: Self = Self(2);
    /// A part of a request or of an answer.
    pub const EVENT: Self = Self(4);
    /// On a request: the session begins, and a capability may be there. On an answer: parts follow.
    pub const START: Self = Self(8);
    /// On a request: it is the last one. On an answer: there are no further parts.
    pub const END: Self = Self(0x10);
    /// An answer is wanted. There is always one.
    pub const ACK_REQ: Self = Self(0x20);
    /// The payload is compressed with zstd.
    pub const COMP: Self = Self(0x40);
    /// The payload is encrypted between the ends. Nothing here looks into it.
    pub const APP_E2E: Self = Self(0x80);
    /// Every flag that means something.
    pub const ALL: Self = Self(0xFF);

    /// The names of [`Flags::ALL`], lowest bit first.
    const NAMES: [&str; 8] = ["REQ", "RESP", "EVENT", "START", "END", "ACK_REQ", "COMP", "APP_E2E"];

    /// From the bits of a header.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// As the bits of a header.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of these are there.
    #[must_use]
    pub const fn contains(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether every one of them means something.
    #[must_use]
    pub const fn is_known(self) -> bool {
        Self::ALL.contains(self)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::NAMES.iter().enumerate();
        let known = known.filter(|(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| *name);
        let mut names: Vec<_> = known.collect();
        if !self.is_known() {
            names.push("UNKNOWN");
        }
        write!(f, "Flags({})", names.join("|"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_put_together_and_taken_apart() {
        let flags = Flags::REQ | Flags::START;
        assert_eq!(flags.bits(), 9);
        assert!(flags.contains(Flags::START) && !flags.contains(Flags::START | Flags::END));
        assert_eq!(flags.without(Flags::START), Flags::REQ);
        assert_eq!(format!("{flags:?}"), "Flags(REQ|START)");
        assert!(Flags::ALL.is_known());
        for bit in 8..16 {
            assert!(!Flags::from_bits(1 << bit | 1).is_known());
        }
        assert_eq!(format!("{:?}", Flags::from_bits(0x8040)), "Flags(COMP|UNKNOWN)");
    }
}

//! What can be done with a mailbox, as the `op` caveat names it. The set in a caveat is never
//! empty; the set a grant is left with may be.

use std::fmt;
use std::str::FromStr;

use super::caveat::BadCaveat;

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `send`
    Send,
    /// `recv`
    Receive,
    /// `ack`, which also extends
    Acknowledge,
    /// `nack`
    Nack,
    /// `admin`: policies, purging, dead letters, capabilities
    Admin,
}

impl Op {
    /// Every operation.
    pub const ALL: [Self; 5] =
        [Self::Send, Self::Receive, Self::Acknowledge, Self::Nack, Self::Admin];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "recv",
            Self::Acknowledge => "ack",
            Self::Nack => "nack",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of operations, written `send,recv`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ops(u8);

impl Ops {
    /// All of them.
    #[must_use]
    pub const fn all() -> Self {
        Self(0b1_1111)
    }

    /// Whether `op` is one of them.
    #[must_use]
    pub const fn contains(self, op: Op) -> bool {
        self.0 & op.bit() != 0
    }

    /// Those in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Them one by one, in the order of [`Op::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |op| self.contains(*op))
    }
}

impl From<Op> for Ops {
    fn from(op: Op) -> Self {
        Self(op.bit())
    }
}

impl FromStr for Ops {
    type Err = BadCaveat;

    fn from_str(text: &str) -> Result<Self, BadCaveat> {
        let mut set = 0;
        for word in text.split(',') {
            let op = Op::ALL.into_iter().find(|op| op.as_str() == word).ok_or(BadCaveat::Ops)?;
            if set & op.bit() != 0 {
                return Err(BadCaveat::Ops);
            }
            set |= op.bit();
        }
        Ok(Self(set))
    }
}

impl fmt::Display for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, op) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{op}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ops({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_all() {
        assert_eq!(Ops::all().to_string(), "send,recv,ack,nack,admin");
        assert_eq!(Ops::all().iter().count(), Op::ALL.len());
        assert_eq!("admin,nack,ack,recv,send".parse(), Ok(Ops::all()));
    }

    #[test]
    fn what_is_not_a_list_of_known_words_is_refused() {
        for bad in ["", ",", "send,", ",send", "send, recv", "Send", "send,send", "*", "receive"] {
            assert_eq!(bad.parse::<Ops>(), Err(BadCaveat::Ops), "{bad:?}");
        }
    }

    #[test]
    fn an_intersection_holds_what_both_hold() {
        let both = |a: &str, b: &str| {
            a.parse::<Ops>().unwrap().intersection(b.parse().unwrap()).to_string()
        };
        assert_eq!(both("send,recv,ack", "ack,recv,nack"), "recv,ack");
        assert_eq!(both("send", "recv"), "");
    }
}

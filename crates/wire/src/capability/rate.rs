//! How often a capability may be used. Never zero, so that a limiter can divide by it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::caveat::BadCaveat;
use super::number::number;

/// What a rate is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// `/s`
    Second,
    /// `/m`
    Minute,
    /// `/h`
    Hour,
}

impl Period {
    /// How long it is.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        match self {
            Self::Second => 1_000,
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
        }
    }
}

/// So many times in a period, written `100/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// How many times.
    pub times: NonZeroU32,
    /// In which period.
    pub per: Period,
}

impl FromStr for Rate {
    type Err = BadCaveat;

    fn from_str(text: &str) -> Result<Self, BadCaveat> {
        let (times, per) = text.split_once('/').ok_or(BadCaveat::Rate)?;
        let times = number(times)
            .and_then(|times| u32::try_from(times).ok())
            .and_then(NonZeroU32::new)
            .ok_or(BadCaveat::Rate)?;
        let per = match per {
            "s" => Period::Second,
            "m" => Period::Minute,
            "h" => Period::Hour,
            _ => return Err(BadCaveat::Rate),
        };
        Ok(Self { times, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Period::Second => 's',
            Period::Minute => 'm',
            Period::Hour => 'h',
        };
        write!(f, "{}/{per}", self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_period() {
        for good in ["1/s", "100/m", "4294967295/h"] {
            assert_eq!(good.parse::<Rate>().unwrap().to_string(), good);
        }
        for bad in ["", "/s", "1", "1/", "0/s", "01/s", "1/d", "1/S", "1/s/s", "4294967296/s"] {
            assert_eq!(bad.parse::<Rate>(), Err(BadCaveat::Rate), "{bad:?}");
        }
    }
}

//! A moment as caveats name it: whole milliseconds of Unix time, written as RFC 3339 in UTC. Every
//! value has such a spelling, so years are 0000 to 9999.

use std::fmt;
use std::str::FromStr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::caveat::BadCaveat;

/// A moment between the years 0000 and 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

const FIRST: i64 = -62_167_219_200_000;
const LAST: i64 = 253_402_300_799_999;

impl Timestamp {
    /// The moment so many milliseconds after 1970, if RFC 3339 has a spelling for it.
    #[must_use]
    pub fn from_unix_ms(ms: i64) -> Option<Self> {
        (FIRST..=LAST).contains(&ms).then_some(Self(ms))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn unix_ms(self) -> i64 {
        self.0
    }
}

impl FromStr for Timestamp {
    type Err = BadCaveat;

    fn from_str(text: &str) -> Result<Self, BadCaveat> {
        // The parser would also take other separators and small letters.
        let is_capital = text.is_ascii()
            && text.as_bytes().get(10) == Some(&b'T')
            && !text.bytes().any(|byte| byte.is_ascii_lowercase());
        if !is_capital {
            return Err(BadCaveat::Timestamp);
        }
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| BadCaveat::Timestamp)?;
        let ms = moment.unix_timestamp_nanos().div_euclid(1_000_000);
        i64::try_from(ms).ok().and_then(Self::from_unix_ms).ok_or(BadCaveat::Timestamp)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = OffsetDateTime::from_unix_timestamp(self.0.div_euclid(1_000))
            .expect("it is in the range of years that RFC 3339 has");
        let (year, month, day) = (moment.year(), u8::from(moment.month()), moment.day());
        let (hour, minute, second) = moment.to_hms();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match self.0.rem_euclid(1_000) {
            0 => f.write_str("Z"),
            ms => write!(f, ".{ms:03}Z"),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix_ms(text: &str) -> Option<i64> {
        text.parse().ok().map(Timestamp::unix_ms)
    }

    #[test]
    fn every_way_to_write_a_moment_is_that_moment() {
        for text in [
            "2030-01-01T00:00:00Z",
            "2030-01-01T00:00:00.000Z",
            "2030-01-01T00:00:00.000999Z",
            "2030-01-01T01:00:00+01:00",
            "2029-12-31T19:00:00-05:00",
        ] {
            assert_eq!(unix_ms(text), Some(1_893_456_000_000), "{text}");
        }
        assert_eq!(unix_ms("1969-12-31T23:59:59.9999Z"), Some(-1));
    }

    #[test]
    fn the_first_and_the_last_moment_can_be_written() {
        for (ms, text) in [(FIRST, "0000-01-01T00:00:00Z"), (LAST, "9999-12-31T23:59:59.999Z")] {
            let moment = Timestamp::from_unix_ms(ms).unwrap();
            assert_eq!(moment.to_string(), text);
            assert_eq!(text.parse(), Ok(moment));
        }
        assert_eq!(Timestamp::from_unix_ms(FIRST - 1), None);
        assert_eq!(Timestamp::from_unix_ms(LAST + 1), None);
        assert_eq!(unix_ms("0000-01-01T00:00:00+00:01"), None);
        assert_eq!(unix_ms("9999-12-31T23:59:59-00:01"), None);
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for bad in [
            "",
            "never",
            "2030-01-01",
            "2030-01-01T00:00:00",
            "2030-01-01 00:00:00Z",
            "2030-01-01t00:00:00Z",
            "2030-01-01T00:00:00z",
            "2030-02-30T00:00:00Z",
            "2030-01-01T24:00:00Z",
            "2030-01-01T00:00:00Z ",
            "30-01-01T00:00:00Z",
            "1893456000",
            "2030-01-01T00:00:00.Z",
            "+2030-01-01T00:00:00Z",
            "2030-01-01T00:00:00+0100",
        ] {
            assert_eq!(unix_ms(bad), None, "{bad:?}");
        }
    }
}

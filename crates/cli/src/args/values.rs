//! How single values are read: times, counts, pairs. Invariant: what is out of bounds is refused
//! here, with words that say what is allowed.

use std::time::Duration;

use mailbox::DeadReason;

/// The units that a time may have, longest suffix first, and how many milliseconds each is.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Longest time that can be said.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Reads `500ms`, `5s`, `2m`, `1h`, `1d`; a bare number is seconds. Fractions are allowed: `1.5s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || "write 500ms, 5s, 2m, 1h or 1d; a bare number is seconds".to_owned();
    let suffix = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let number = &text[..text.len() - suffix.len()];
    let unit = if suffix.is_empty() { "s" } else { suffix };
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return Err(refuse());
    }
    let too_long = || format!("at most {} days", LONGEST.as_secs() / 86_400);
    let whole: u64 = whole.parse().map_err(|_| too_long())?;
    let part: u64 = fraction.parse().map_err(|_| refuse())?;
    let digits = u32::try_from(fraction.len()).map_err(|_| refuse())?;
    let nanos = part * millis * 1_000_000 / 10_u64.pow(digits).max(1);
    let whole = whole.checked_mul(*millis).ok_or_else(too_long)?;
    let time = Duration::from_millis(whole) + Duration::from_nanos(nanos);
    if time > LONGEST { Err(too_long()) } else { Ok(time) }
}

/// Reads `key=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value".to_owned()),
    }
}

/// Reads why a message died.
pub(crate) fn dead_reason(text: &str) -> Result<DeadReason, String> {
    let known = DeadReason::ALL.into_iter().find(|reason| reason.as_str() == text);
    known.ok_or_else(|| format!("there are {}", DeadReason::ALL.map(DeadReason::as_str).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_unit() {
        for (text, millis) in [
            ("5", 5_000),
            ("0", 0),
            ("500ms", 500),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1.5s", 1_500),
            ("0.25", 250),
            ("1.5m", 90_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_and_does_not_overflow() {
        let long = format!("{}h", u64::MAX);
        for text in [
            "",
            "s",
            ".",
            "5.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "5 s",
            "5S",
            "5x",
            "1.2.3",
            "٣s",
            "400d",
            "99999999999999999999",
            &long,
            "1.0000000001s",
        ] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pair_may_have_more_equal_signs_and_an_empty_value() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("=a").is_err() && pair("a").is_err());
    }

    #[test]
    fn every_reason_is_read_by_the_word_it_is_shown_with() {
        for reason in DeadReason::ALL {
            assert_eq!(dead_reason(reason.as_str()), Ok(reason));
        }
        assert!(dead_reason("tired").unwrap_err().contains("max_attempts, expired"));
    }
}

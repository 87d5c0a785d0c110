//! How single values are read: times, counts, pairs. Invariant: what is out of bounds is refused
//! here, with words that say what is allowed.

use std::time::Duration;

use mailbox::DeadReason;

/// Longest time that can be said.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Reads `500ms`, `5s`, `2m`, `1h`, `1d`; a bare number is seconds. Fractions are allowed: `1.5s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = mailbox_server::settings::time(text)?;
    if time > LONGEST {
        return Err(format!("at most {} days", LONGEST.as_secs() / 86_400));
    }
    Ok(time)
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

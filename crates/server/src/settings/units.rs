//! Times and sizes as people write them: `250ms`, `30s`, `7d`, `512KiB`. Invariant: what is shown
//! is read as the same value.

use std::time::Duration;

/// Units of time, and how many milliseconds each is.
const TIMES: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Units of size, and how many bytes each is.
const SIZES: [(&str, u64); 5] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("kB", 1_000), ("B", 1)];

/// Reads `500ms`, `5s`, `2m`, `1h`, `1d`; a bare number is seconds. Fractions are allowed: `1.5s`.
///
/// # Errors
/// What to write instead.
pub fn time(text: &str) -> Result<Duration, String> {
    let refuse = || "write 500ms, 5s, 2m, 1h or 1d; a bare number is seconds".to_owned();
    let suffix = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let number = &text[..text.len() - suffix.len()];
    let unit = if suffix.is_empty() { "s" } else { suffix };
    let (_, millis) = TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return Err(refuse());
    }
    let too_long = || "that is longer than anything lasts".to_owned();
    let whole: u64 = whole.parse().map_err(|_| too_long())?;
    let part: u64 = fraction.parse().map_err(|_| refuse())?;
    let digits = u32::try_from(fraction.len()).map_err(|_| refuse())?;
    let nanos = part * millis * 1_000_000 / 10_u64.pow(digits).max(1);
    let whole = whole.checked_mul(*millis).ok_or_else(too_long)?;
    Ok(Duration::from_millis(whole) + Duration::from_nanos(nanos))
}

/// Reads `65536`, `512KiB`, `8MiB`; a bare number is bytes.
///
/// # Errors
/// What to write instead.
pub fn size(text: &str) -> Result<u64, String> {
    let refuse = || "write 65536, 512KiB, 8MiB or 1GiB; a bare number is bytes".to_owned();
    let suffix = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number = &text[..text.len() - suffix.len()];
    let unit = if suffix.is_empty() { "B" } else { suffix };
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
    let number: u64 = number.parse().map_err(|_| refuse())?;
    number.checked_mul(*bytes).ok_or_else(|| "that is larger than anything is".to_owned())
}

/// A time in the largest unit that is a whole number of them.
pub(super) fn shown_time(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let fits = TIMES.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    let (name, unit) = fits.expect("a millisecond fits always");
    format!("{}{name}", millis / unit)
}

/// A size in the largest unit that is a whole number of them.
pub(super) fn shown_size(bytes: u64) -> String {
    let binary = SIZES.iter().filter(|(name, _)| *name != "kB");
    let fits = binary.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    match fits {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_as_the_same() {
        for text in ["0s", "250ms", "30s", "1500ms", "5m", "36h", "7d", "365d"] {
            let read = time(text).unwrap();
            assert_eq!(shown_time(read), text);
            assert_eq!(time(&shown_time(read)), Ok(read));
        }
        for text in ["0B", "100B", "512KiB", "8MiB", "1GiB", "1025B"] {
            assert_eq!(shown_size(size(text).unwrap()), text);
        }
        assert_eq!(size("2kB"), Ok(2000));
        assert_eq!(size("4096"), Ok(4096));
    }

    #[test]
    fn what_is_neither_time_nor_size_is_refused() {
        let long = format!("{}d", u64::MAX);
        for text in ["", "s", "-1s", "1e3", "5 s", "1w", "1.2.3", ".5", &long] {
            assert!(time(text).is_err(), "{text:?}");
        }
        let large = format!("{}KiB", u64::MAX);
        for text in ["", "KiB", "1.5KiB", "-1", "5 KiB", "5kib", "5K", &large] {
            assert!(size(text).is_err(), "{text:?}");
        }
    }
}

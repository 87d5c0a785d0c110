//! Numbers as they stand in file names: Crockford's base 32, the digits of ULIDs. Without leading
//! zeros, so that a number has one form only and a name that was read is written the same.

use std::fmt::{self, Write};

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A number, to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digits(pub(crate) u64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = (u64::BITS - self.0.leading_zeros()).div_ceil(5).max(1);
        (0..places).rev().try_for_each(|place| {
            f.write_char(char::from(DIGITS[(self.0 >> (5 * place)) as usize & 31]))
        })
    }
}

/// Reads a number that was written by [`Digits`], and nothing else.
pub(crate) fn parse(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > 13 || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.bytes().try_fold(0_u64, |number, byte| {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        number.checked_mul(32)?.checked_add(digit as u64)
    })
}

/// Reads a decimal number without leading zeros.
pub(crate) fn decimal<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_form_and_reads_back() {
        for number in [0, 1, 31, 32, 33, 1 << 44, u64::MAX - 1, u64::MAX] {
            let text = Digits(number).to_string();
            assert_eq!(parse(&text), Some(number), "{text}");
        }
        for odd in ["", "00", "01", "U", "a", "-1", "G000000000000", "00000000000001"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
        assert_eq!((decimal("0"), decimal("42")), (Some(0_u32), Some(42)));
        for odd in ["", "+1", "01", "4294967296", "1 "] {
            assert_eq!(decimal::<u32>(odd), None, "{odd}");
        }
    }
}

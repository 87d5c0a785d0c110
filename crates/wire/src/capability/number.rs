//! Numbers as caveats write them: every number has one spelling.

/// Reads a decimal number without sign, spaces or leading zeros.
pub(super) fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_spelling() {
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        for bad in ["", "00", "01", "+1", "-1", " 1", "1 ", "1_0", "0x1", "18446744073709551616"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }
}

//! How a stranger's identifier gets into texts. Invariant: a user, a password or an option of an
//! address never does, however badly the address is formed.

use std::borrow::Cow;

use mailbox_core::limits;

use crate::error::{Error, Result};

/// The identifier without what may be secret: everything before the last `@`, and everything from
/// the first `?` on. Where the two are in each other's way, only the scheme is left.
pub(crate) fn shown(identifier: &str) -> Cow<'_, str> {
    if !identifier.contains(['@', '?']) {
        return Cow::Borrowed(identifier);
    }
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    let (scheme, rest) = match identifier.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        _ => ("", identifier),
    };
    let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
    if options.contains('@') {
        // A password with a question mark, or an option with an at sign: who knows.
        return Cow::Owned(format!("{scheme}:…"));
    }
    let place = match path.rsplit_once('@') {
        Some((_, place)) => place,
        None => path.trim_start_matches('/'),
    };
    Cow::Owned(if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") })
}

/// The error for an identifier that cannot be read. `why` quotes parts of it, so it is left out
/// where something of the identifier is hidden.
pub(crate) fn unreadable(identifier: &str, why: &Error) -> Error {
    match shown(identifier) {
        Cow::Borrowed(_) => Error::resolution(identifier, format_args!("{why:.400}")),
        Cow::Owned(_) => Error::resolution(identifier, "it is malformed"),
    }
}

/// Refuses identifiers that no message can carry (L1), so that what is kept by identifier is
/// bounded in bytes, not in number alone.
pub(crate) fn check_length(identifier: &str) -> Result<()> {
    if identifier.len() <= limits::REPLY_TO_LEN {
        return Ok(());
    }
    let most = limits::REPLY_TO_LEN;
    let why = format!("it has {} bytes, allowed are at most {most}", identifier.len());
    Err(Error::resolution(identifier, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown_however_the_address_is_formed() {
        for (identifier, expected) in [
            ("replies", "replies"),
            ("user:42:inbox", "user:42:inbox"),
            ("redis://h:1/jobs", "redis://h:1/jobs"),
            ("redis://u:hunter2@h:1/jobs", "redis://h:1/jobs"),
            ("redis://u:hunter2@x@h/jobs", "redis://h/jobs"),
            ("redis:u:hunter2@h/jobs", "redis://h/jobs"),
            ("REDIS://u:hunter2@h/jobs", "REDIS://h/jobs"),
            ("redis://u:hun/hunter2@h", "redis://h"),
            ("redis://h/jobs?password=hunter2", "redis://h/jobs"),
            ("redis://u:x?hunter2@h/jobs", "redis:…"),
            ("redis://h/jobs?password=x@hunter2", "redis:…"),
            ("//u:hunter2@h/jobs", "h/jobs"),
            ("u ser:hunter2@h/jobs", "h/jobs"),
            ("@?", "@?".trim_start_matches("@?")),
        ] {
            assert_eq!(shown(identifier), expected, "{identifier}");
            let error = Error::resolution(identifier, "no");
            assert_eq!(error.identifier(), Some(expected));
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_long_identifier_is_cut_in_the_text() {
        let error = Error::resolution(&"x".repeat(100_000), "no");
        assert!(error.to_string().len() < 300);
    }
}

//! Names of mailboxes. Invariant: a `Name` that exists is valid (L1), so nothing behind it checks
//! again.

use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use mailbox_core::limits;

use crate::error::{Error, ErrorKind, Result};

/// The name of a mailbox: 1 to 80 of `A-Z a-z 0-9 . _ : -`, but not `.` or `..`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParameter`], saying what is wrong with it.
    pub fn parse(name: &str) -> Result<Self> {
        let refuse = |why: String| {
            // A name may be a stranger's, and as long as a stranger likes.
            let start: String = name.chars().take(limits::NAME_LEN + 1).collect();
            Err(Error::new(ErrorKind::InvalidParameter, format!("name {start:?}: {why}"))
                .with_field("name"))
        };
        let length = name.chars().count();
        if length == 0 || length > limits::NAME_LEN {
            return refuse(format!(
                "has {length} characters, allowed are 1..={}",
                limits::NAME_LEN
            ));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
        if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
            return refuse(format!("has the character {bad:?}, allowed are A-Z a-z 0-9 . _ : -"));
        }
        if name == "." || name == ".." {
            return refuse("is a path, not a name".into());
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::parse(&name)
    }
}

impl TryFrom<&String> for Name {
    type Error = Error;

    fn try_from(name: &String) -> Result<Self> {
        Self::parse(name)
    }
}

impl From<&Self> for Name {
    fn from(name: &Self) -> Self {
        name.clone()
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_name_are_exact() {
        for good in ["a", "user:42:inbox", "A.b_c-d", &"x".repeat(80), "..."] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\0b", &"x".repeat(81)] {
            let error = Name::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{bad:?}");
            assert_eq!(error.field(), Some("name"));
        }
    }
}

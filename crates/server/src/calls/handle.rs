//! Receipt handles as clients see them: they say which mailbox they are of, so that settling needs
//! nothing else, in whichever process.

use std::fmt;

use mailbox::{Name, ReceiptHandle};

/// A delivery, as a client names it: `mailbox/handle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) mailbox: Name,
    pub(crate) receipt_handle: ReceiptHandle,
}

/// Longest handle that is looked at.
const LEN: usize = 2048;

impl Handle {
    /// Reads a handle; none if it is not one of ours.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > LEN {
            return None;
        }
        let (mailbox, handle) = text.split_once('/')?;
        let mailbox = Name::parse(mailbox).ok()?;
        Some(Self { mailbox, receipt_handle: ReceiptHandle::from_text(handle) })
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.mailbox, self.receipt_handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_reads_back_and_other_text_does_not() {
        let text = "user:42:inbox/0a/b";
        let handle = Handle::parse(text).unwrap();
        assert_eq!(handle.mailbox.as_str(), "user:42:inbox");
        assert_eq!(handle.receipt_handle.to_string(), "0a/b");
        assert_eq!(handle.to_string(), text);
        for text in ["", "a", "a b/c", "/", &format!("a/{}", "c".repeat(LEN))] {
            assert_eq!(Handle::parse(text), None, "{text}");
        }
    }
}

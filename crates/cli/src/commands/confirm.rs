//! Asking before something is deleted. Invariant: without an answer nothing is.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use mailbox::{Error, ErrorKind, Result};

/// Whether to go on: because it was said before, or is said now. Where there is nobody to ask, it
/// has to be said before.
pub(super) fn confirm(question: &str, said_yes: bool) -> Result<bool> {
    if said_yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        let message = format!("{question} There is nobody to ask: add --yes if you mean it");
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("yes"));
    }
    // If nobody listens there will be no answer.
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().take(16).read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}

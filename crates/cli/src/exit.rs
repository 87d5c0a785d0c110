//! From errors to exit codes, in one place. The table is part of the interface: scripts rely on it.

use std::process::ExitCode;

use mailbox::{Error, ErrorKind, Result};

/// Done.
const DONE: u8 = 0;
/// Ended by Ctrl-C or SIGTERM before it was done, as shells have it.
const INTERRUPTED: u8 = 130;

/// How a command ended that did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is well.
    Done,
    /// It is not: what was looked at has this trouble, which has been said.
    Found(ErrorKind),
    /// It was told to end before it was done, and has tidied up.
    Interrupted,
}

/// Says what went wrong, to people or to a program, and gives the exit code.
pub(crate) fn code(outcome: Result<Outcome>, is_json: bool) -> ExitCode {
    let code = match outcome {
        Ok(Outcome::Done) => DONE,
        Ok(Outcome::Found(kind)) => code_of(kind),
        Ok(Outcome::Interrupted) => INTERRUPTED,
        Err(error) => {
            crate::output::complain(&error, is_json);
            code_of(error.kind())
        }
    };
    ExitCode::from(code)
}

/// What a script can tell errors apart by.
pub(crate) const fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidParameter
        | ErrorKind::TooLarge
        | ErrorKind::Serialization
        | ErrorKind::MailboxResolution
        | ErrorKind::ReplyNotAvailable
        | ErrorKind::Unsupported => 2,
        ErrorKind::NotFound
        | ErrorKind::ReceiptHandleExpired
        | ErrorKind::MessageFinalized
        | ErrorKind::Duplicate => 3,
        ErrorKind::Unauthorized | ErrorKind::Forbidden => 4,
        ErrorKind::Integrity => 5,
        ErrorKind::MailboxFull
        | ErrorKind::Saturated
        | ErrorKind::Connection
        | ErrorKind::Closed => 6,
        // A defect, and every kind that this version does not know.
        _ => 1,
    }
}

/// Output that cannot be written.
pub(crate) fn unwritten(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "cannot write the output").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        let codes: Vec<(ErrorKind, u8)> =
            ErrorKind::ALL.into_iter().map(|kind| (kind, code_of(kind))).collect();
        let only_defects = codes.iter().filter(|(_, code)| *code == 1).map(|(kind, _)| *kind);
        assert_eq!(only_defects.collect::<Vec<_>>(), [ErrorKind::Internal]);
        assert!(codes.contains(&(ErrorKind::Integrity, 5)));
        assert!(codes.contains(&(ErrorKind::Connection, 6)));
        assert!(codes.contains(&(ErrorKind::MailboxFull, 6)));
    }
}

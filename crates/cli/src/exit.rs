//! From what happened to an exit code. The codes of errors are in the table of all protocols
//! (`mailbox::Status`); scripts rely on them.

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
        Ok(Outcome::Found(kind)) => kind.status().exit,
        Ok(Outcome::Interrupted) => INTERRUPTED,
        Err(error) => {
            crate::output::complain(&error, is_json);
            error.kind().status().exit
        }
    };
    ExitCode::from(code)
}

/// Output that cannot be written.
pub(crate) fn unwritten(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "cannot write the output").with_source(error)
}

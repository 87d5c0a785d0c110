//! One run of the command: it is started, told its input, and heard to its end.

use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use mailbox::{Error, ErrorKind, Result};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::answers::Answer;

/// Runs the command. It is ended if nobody waits for it any more.
pub(super) async fn run<'a>(
    program: &Path,
    arguments: impl Iterator<Item = &'a str>,
    input: Bytes,
) -> Result<Answer> {
    let failed = |error: std::io::Error| {
        // The system refuses arguments of more than 128 KiB.
        let kind = match error.kind() {
            std::io::ErrorKind::ArgumentListTooLong => ErrorKind::TooLarge,
            _ => ErrorKind::Connection,
        };
        let message = format!("{} cannot be run", program.display());
        Error::new(kind, message).with_source(error)
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let tell = async move {
        // It may end without having read all: then it says why.
        let _ = stdin.write_all(&input).await;
        drop(stdin);
    };
    let (told, heard) = tokio::join!(tell, child.wait_with_output());
    let () = told;
    let output = heard.map_err(failed)?;
    Ok(Answer {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

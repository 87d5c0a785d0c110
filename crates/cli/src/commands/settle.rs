//! `mailbox ack`, `nack`, `extend` and `reject`: settles deliveries by their receipt handles.
//! Invariant: every handle gets its own result, and the exit code is that of the worst.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use mailbox::{DeadReason, Error, ErrorKind, ReceiptHandle, Result, Settlement, Verdict};
use serde::Serialize;

use crate::args::{Ack, Extend, Handles, Nack, Reject};
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making, Place};

/// Longest receipt handle that is read.
const HANDLE_LEN: u64 = 4096;

pub(super) async fn acknowledge(args: &Ack) -> Result<Outcome> {
    settle(&args.handles, Verdict::Acknowledge).await
}

pub(super) async fn nack(args: &Nack) -> Result<Outcome> {
    settle(&args.handles, given_back(args.delay, args.error.clone())).await
}

fn given_back(delay: Duration, error: Option<String>) -> Verdict {
    Verdict::Nack { delay, error: error.map(String::into_boxed_str) }
}

pub(super) async fn extend(args: &Extend) -> Result<Outcome> {
    settle(&args.handles, Verdict::Extend { timeout: args.visibility }).await
}

pub(super) async fn reject(args: &Reject) -> Result<Outcome> {
    let error = args.reason.clone().map(String::into_boxed_str);
    settle(&args.handles, Verdict::Reject { reason: DeadReason::Rejected, error }).await
}

async fn settle(args: &Handles, verdict: Verdict) -> Result<Outcome> {
    // A whole receive's worth of handles at a time; stdin is read before anything is opened.
    place::read(&args.address)?;
    let handles = given(&args.handles)?;
    place::at(&args.address, Making::No, async |place| {
        let batch = place.backend.abilities().max_messages.max(1) as usize;
        let mut worst = None;
        for handles in handles.chunks(batch) {
            some(args, place, handles, &verdict, &mut worst).await?;
        }
        Ok(worst.map_or(Outcome::Done, Outcome::Found))
    })
    .await
}

#[derive(Serialize)]
struct Shown<'a> {
    receipt_handle: &'a str,
    ok: bool,
    error: Option<ShownError>,
}

#[derive(Serialize)]
struct ShownError {
    kind: String,
    message: String,
}

async fn some(
    args: &Handles,
    place: &Place,
    handles: &[String],
    verdict: &Verdict,
    worst: &mut Option<ErrorKind>,
) -> Result<()> {
    let settlement = |handle: &String| Settlement {
        receipt_handle: ReceiptHandle::from_text(handle),
        verdict: verdict.clone(),
    };
    let batch = handles.iter().map(settlement).collect();
    let settled = place.backend.settle(&place.name, batch).await?;
    for (handle, settled) in handles.iter().zip(settled) {
        if args.json {
            let error = settled.as_ref().err().map(|error| ShownError {
                kind: format!("{:?}", error.kind()),
                message: error.to_string(),
            });
            output::print_json_line(&Shown { receipt_handle: handle, ok: error.is_none(), error })?;
        }
        let Err(error) = settled else { continue };
        if !args.json {
            output::complain(&hinted(&error, handle), false);
        }
        if worst.is_none_or(|kind| badness(error.kind()) > badness(kind)) {
            *worst = Some(error.kind());
        }
    }
    Ok(())
}

/// The error, with the handle it is about, and what to do.
fn hinted(error: &Error, handle: &str) -> Error {
    let shown = output::tamed(handle, 100);
    let hint = match error.kind() {
        ErrorKind::ReceiptHandleExpired => "; receive the message again for a new handle",
        _ => "",
    };
    Error::new(error.kind(), format!("{shown}: {}{hint}", output::worded(error)))
}

/// A defect is worse than trouble, and trouble worse than something that is not there.
const fn badness(kind: ErrorKind) -> u8 {
    match kind.status().exit {
        1 => 6,
        5 => 5,
        6 => 4,
        4 => 3,
        2 => 2,
        3 => 1,
        _ => 0,
    }
}

/// The handles that were written down, `-` standing for those on stdin.
fn given(handles: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for handle in handles {
        if handle == "-" { read(&mut all)? } else { all.push(handle.clone()) }
    }
    Ok(all)
}

/// The handles on stdin: one a line, empty lines left out.
fn read(handles: &mut Vec<String>) -> Result<()> {
    let mut input = io::stdin().lock();
    loop {
        let mut line = String::new();
        let read = (&mut input).take(HANDLE_LEN).read_line(&mut line).map_err(|error| {
            let message = "cannot read receipt handles from stdin";
            Error::new(ErrorKind::InvalidParameter, message).with_source(error)
        })?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 == HANDLE_LEN {
            return Err(Error::too_large("receipt handle", read, HANDLE_LEN as usize));
        }
        let line = line.trim();
        if !line.is_empty() {
            handles.push(line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_is_worse_than_none() {
        assert!(ErrorKind::ALL.into_iter().all(|kind| badness(kind) > 0));
        assert!(badness(ErrorKind::Internal) > badness(ErrorKind::Connection));
        assert!(badness(ErrorKind::Connection) > badness(ErrorKind::ReceiptHandleExpired));
    }
}

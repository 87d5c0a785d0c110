//! `mailbox send`: puts messages into a mailbox. Invariant: the payload is the bytes that were
//! given, and an id that was printed is that of a message that is kept.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use mailbox::{Error, ErrorKind, Outgoing, Result, Sent, limits};
use serde::Serialize;

use crate::args::Send;
use crate::exit::Outcome;
use crate::output::{self, Heard};
use crate::place::{self, Making, Place};
use crate::progress::Progress;

/// What is read at once from stdin, so that many short lines become one batch.
const BUFFER: usize = 256 * 1024;

pub(super) async fn run(args: &Send) -> Result<Outcome> {
    let address = place::read(&args.address)?;
    if address.scheme() == "memory" {
        output::say("memory: ends with this command; what is sent is gone then");
    }
    if args.lines {
        return place::at(&args.address, Making::Yes, async |place| lines(args, place).await).await;
    }
    // Before the mailbox is opened: a journal is not held up while a command still writes.
    let source = Source::of(args.body.as_deref(), args.file.as_deref())?;
    let mut start = Start::read(source)?;
    let place = Place::open(address, Making::Yes).await?;
    let sent = send_one(args, &place, &mut start).await;
    let closed = place.backend.close().await;
    show(args, &sent?)?;
    closed.map(|()| Outcome::Done)
}

async fn send_one(args: &Send, place: &Place, start: &mut Start) -> Result<Sent> {
    let payload = start.rest(place.backend.abilities().max_payload)?;
    let message = outgoing(args, payload, args.key.clone());
    let mut sent = place.backend.send(&place.name, vec![message]).await?;
    sent.pop().unwrap_or_else(|| Err(unanswered()))
}

/// A backend that gives fewer answers than there were questions.
pub(super) fn unanswered() -> Error {
    Error::new(ErrorKind::Internal, "the backend gave no answer for a message")
}

fn outgoing(args: &Send, payload: Bytes, key: Option<String>) -> Outgoing {
    Outgoing {
        payload,
        attributes: args.attributes.iter().cloned().collect(),
        reply_to: args.reply_to.clone(),
        idempotency_key: key,
        group: args.group.clone(),
        delay: args.delay.unwrap_or_default(),
    }
}

#[derive(Serialize)]
struct Shown {
    id: String,
    duplicate: bool,
}

fn show(args: &Send, sent: &Sent) -> Result<Heard> {
    let (id, duplicate) = (sent.id.to_string(), sent.duplicate);
    // Whoever reads only that something failed would send it again.
    let unprinted = |error: Error| {
        let message = format!("{} was sent, but its id cannot be printed", sent.id);
        Error::new(error.kind(), message).with_source(error)
    };
    if args.json {
        return output::print_json_line(&Shown { id, duplicate }).map_err(unprinted);
    }
    if duplicate {
        output::say("this key was used before: nothing new was sent");
    }
    output::write(format!("{id}\n").as_bytes()).map_err(unprinted)
}

/// Where a payload comes from.
pub(super) enum Source {
    Given(Bytes),
    Read(Box<dyn Read>),
}

impl Source {
    pub(super) fn of(body: Option<&OsStr>, file: Option<&std::path::Path>) -> Result<Self> {
        if let Some(path) = file {
            let opened = File::open(path).map_err(|error| unreadable(path.display(), error))?;
            return Ok(Self::Read(Box::new(opened)));
        }
        match body {
            Some(body) if body != "-" => Ok(Self::Given(Bytes::copy_from_slice(body.as_bytes()))),
            None if io::stdin().is_terminal() => {
                let message = "what shall be sent? Say it, pipe it in, or write - to type it";
                Err(Error::new(ErrorKind::InvalidParameter, message).with_field("body"))
            }
            _ => Ok(Self::Read(Box::new(io::stdin()))),
        }
    }
}

/// The start of a payload, and where the rest of it is. Never more is read than a mailbox takes.
pub(super) struct Start {
    read: Vec<u8>,
    rest: Option<Box<dyn Read>>,
}

impl Start {
    /// Reads as much as every mailbox takes by default.
    pub(super) fn read(source: Source) -> Result<Self> {
        match source {
            Source::Given(bytes) => Ok(Self { read: bytes.into(), rest: None }),
            Source::Read(from) => {
                let mut start = Self { read: Vec::new(), rest: Some(from) };
                start.fill(limits::PAYLOAD_LEN)?;
                Ok(start)
            }
        }
    }

    /// All of it, if it has no more than `most` bytes.
    pub(super) fn rest(&mut self, most: usize) -> Result<Bytes> {
        self.fill(most)?;
        if self.read.len() > most {
            return Err(too_large(most));
        }
        Ok(std::mem::take(&mut self.read).into())
    }

    /// Reads until there is one byte more than `most`, or no more.
    fn fill(&mut self, most: usize) -> Result<()> {
        let Some(from) = &mut self.rest else { return Ok(()) };
        let wanted = (most + 1).saturating_sub(self.read.len());
        let read = from.take(wanted as u64).read_to_end(&mut self.read);
        if read.map_err(|error| unreadable("stdin", error))? < wanted {
            // That was the end. Whoever types has said so, and is not asked a second time.
            self.rest = None;
        }
        Ok(())
    }
}

fn too_large(most: usize) -> Error {
    let message = format!("payload has more than {most} bytes, which is all this mailbox takes");
    Error::new(ErrorKind::TooLarge, message).with_field("payload")
}

fn unreadable(what: impl std::fmt::Display, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Forbidden,
        _ => ErrorKind::InvalidParameter,
    };
    Error::new(kind, format!("cannot read {what}")).with_source(error)
}

/// Sends what comes on stdin, a message a line, as soon as it is there.
async fn lines(args: &Send, place: &Place) -> Result<Outcome> {
    let abilities = place.backend.abilities();
    let (most, batch) = (abilities.max_payload, abilities.max_messages as usize);
    let mut lines = Lines::new(most, batch);
    let progress = Progress::new("sending", None);
    let mut number = 0_u64;
    loop {
        // Off this thread: the backend goes on with its own work while nothing comes.
        let (next, read) = tokio::task::spawn_blocking(move || {
            let read = lines.read();
            (lines, read)
        })
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, "reading ended").with_source(error))?;
        lines = next;
        let read = read.map_err(|error| at_line(number + 1, error))?;
        if read.is_empty() {
            progress.finish();
            return Ok(Outcome::Done);
        }
        let first = number + 1;
        number += read.len() as u64;
        let key = |number: u64| args.key.as_ref().map(|key| format!("{key}:{number}"));
        let batch = (first..).zip(read).map(|(number, line)| outgoing(args, line, key(number)));
        let mut sent = match place.backend.send(&place.name, batch.collect()).await {
            Ok(sent) => sent,
            Err(error) => vec![Err(error); (first..=number).count()],
        };
        sent.resize_with((first..=number).count(), || Err(unanswered()));
        let (heard, failed) = show_batch(args, (first..).zip(sent), &progress);
        if !failed.is_empty() {
            if let Err(error) = heard {
                output::complain(&error, args.json);
            }
            return Err(not_sent(&failed, number));
        }
        if heard? == Heard::Gone {
            return Ok(Outcome::Done);
        }
    }
}

/// Prints every id that there is; gives the lines that have none, and why.
fn show_batch(
    args: &Send,
    sent: impl Iterator<Item = (u64, Result<Sent>)>,
    progress: &Progress,
) -> (Result<Heard>, Vec<(u64, Error)>) {
    let mut heard = Ok(Heard::Yes);
    let mut failed = Vec::new();
    for (number, sent) in sent {
        match sent {
            // Nobody reads any more.
            Ok(_) if matches!(heard, Ok(Heard::Gone)) => {}
            Ok(sent) => {
                match (show(args, &sent), &heard) {
                    // Each is said: no other word has its id.
                    (Err(error), Err(before)) => {
                        output::complain(before, args.json);
                        heard = Err(error);
                    }
                    (shown, Ok(_)) => heard = shown,
                    (Ok(_), Err(_)) => {}
                }
                progress.advance(1);
            }
            Err(error) => failed.push((number, error)),
        }
    }
    (heard, failed)
}

/// Says which line it was; those before it were sent.
fn at_line(number: u64, error: Error) -> Error {
    not_sent(&[(number, error)], number)
}

/// Says what became of the lines that failed, of all that were read up to `last`; the others were
/// sent. There is at least one.
fn not_sent(failed: &[(u64, Error)], last: u64) -> Error {
    let what = |error: &Error| (error.is_in_doubt(), error.kind(), format!("{error:#}"));
    // Lines in a row that failed alike, as all do where nobody answers, are one.
    let rows: Vec<&[(u64, Error)]> = failed
        .chunk_by(|(at, one), (next, other)| at + 1 == *next && what(one) == what(other))
        .collect();
    let row = |row: &&[(u64, Error)]| {
        let ((from, error), (to, _)) = (&row[0], &row[row.len() - 1]);
        let lines =
            if from == to { format!("line {from}") } else { format!("lines {from} to {to}") };
        let fate = match (error.is_in_doubt(), from == to) {
            (true, _) => "may not have been sent",
            (false, true) => "was not sent",
            (false, false) => "were not sent",
        };
        match rows.len() {
            1 => format!("{lines} {fate}"),
            _ => format!("{lines} {fate} ({error:#})"),
        }
    };
    let fates: Vec<String> = rows.iter().map(row).collect();
    let (start, error) = &failed[0];
    let rest = if start + failed.len() as u64 == last + 1 {
        let them = if failed.len() == 1 { "it" } else { "them" };
        format!("{} before {them} were, none behind", start - 1)
    } else {
        format!("all others up to line {last} were, none behind")
    };
    let message = format!("{}; {rest}", fates.join(", "));
    let mut told = Error::new(error.kind(), message).with_retry(error.retry());
    if failed.iter().any(|(_, error)| error.is_in_doubt()) {
        told = told.with_doubt();
    }
    // Of several, each has its reason beside it already.
    if rows.len() == 1 { told.with_source(error.clone()) } else { told }
}

/// The lines of stdin.
struct Lines {
    input: BufReader<io::Stdin>,
    most: usize,
    batch: usize,
}

impl Lines {
    fn new(most: usize, batch: usize) -> Self {
        Self { input: BufReader::with_capacity(BUFFER, io::stdin()), most, batch }
    }

    /// The next line, and those behind it that are there already: none keeps another waiting.
    fn read(&mut self) -> Result<Vec<Bytes>> {
        let mut lines = Vec::new();
        while lines.len() < self.batch.max(1) {
            if !lines.is_empty() && !self.input.buffer().contains(&b'\n') {
                break;
            }
            let mut line = Vec::new();
            let mut input = (&mut self.input).take(self.most as u64 + 2);
            input.read_until(b'\n', &mut line).map_err(|error| unreadable("stdin", error))?;
            if line.is_empty() {
                break;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            if line.len() > self.most {
                if lines.is_empty() {
                    return Err(too_large(self.most));
                }
                // Said when its turn comes: those before it are sent.
                lines.push(line.into());
                break;
            }
            lines.push(line.into());
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: ErrorKind) -> Error {
        Error::new(kind, "why")
    }

    #[test]
    fn it_is_said_of_each_line_what_became_of_it() {
        let full = || refused(ErrorKind::MailboxFull);
        let cut = || refused(ErrorKind::Connection).with_doubt();
        for (failed, last, expected) in [
            (vec![(2, full())], 2, "line 2 was not sent; 1 before it were, none behind: why"),
            (
                vec![(3, full()), (4, full()), (5, full())],
                5,
                "lines 3 to 5 were not sent; 2 before them were, none behind: why",
            ),
            (
                vec![(2, full())],
                7,
                "line 2 was not sent; all others up to line 7 were, none behind: why",
            ),
            (vec![(1, cut())], 1, "line 1 may not have been sent; 0 before it were, none behind"),
            (
                vec![(1, full()), (3, cut()), (4, cut())],
                4,
                "line 1 was not sent (why), lines 3 to 4 may not have been sent (why); all others \
                 up to line 4 were, none behind",
            ),
        ] {
            let error = not_sent(&failed, last);
            assert!(format!("{error:#}").starts_with(expected), "{error:#}");
            assert_eq!(error.kind(), failed[0].1.kind());
            assert_eq!(error.retry(), failed[0].1.retry());
            assert_eq!(error.is_in_doubt(), failed.iter().any(|it| it.1.is_in_doubt()));
        }
    }
}

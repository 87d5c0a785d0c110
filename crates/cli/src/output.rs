//! Where words go: what was asked for to stdout, everything else to stderr. Invariant: payloads are
//! written as they are; colours only where the stream is a terminal, or somebody insists.

use std::io::{self, Write};
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};
use mailbox::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::args::Color;
use crate::exit::unwritten;

/// For the first row of a table.
const HEADING: Style = Style::new().bold();
/// For the start of an error.
const TROUBLE: Style = AnsiColor::Red.on_default().bold();

/// Columns of words, also where all of them happen to be digits.
const WORDS: [&str; 4] = ["id", "mailbox", "payload", "last error"];

/// Whether there is still somebody who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It was taken.
    Yes,
    /// Whoever read stdout is gone: the pipe is broken.
    Gone,
}

/// Says when to use colours, for the whole process.
pub(crate) fn colour(when: Color) {
    let choice = match when {
        // NO_COLOR, CLICOLOR and whether it is a terminal are looked at when something is said.
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::AlwaysAnsi,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

/// Writes bytes that were asked for, as they are, and sees them off.
pub(crate) fn write(bytes: &[u8]) -> Result<Heard> {
    let mut out = io::stdout().lock();
    heard(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Prints text that was asked for. A reader that has heard enough is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    heard(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(|_| ())
}

/// Prints one JSON document.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| unwritten(io::Error::other(error)))?;
    write((text + "\n").as_bytes()).map(|_| ())
}

/// Prints one JSON object on a line of its own.
pub(crate) fn print_json_line<T: Serialize>(value: &T) -> Result<Heard> {
    let text = serde_json::to_string(value).map_err(|error| unwritten(io::Error::other(error)))?;
    write((text + "\n").as_bytes())
}

fn heard(written: io::Result<()>) -> Result<Heard> {
    match written {
        Ok(()) => Ok(Heard::Yes),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Heard::Gone),
        Err(error) => Err(unwritten(error)),
    }
}

/// Whether the process was started without a stdout.
pub(crate) fn is_closed() -> bool {
    let stdout = io::stdout();
    let (Ok(flags), Ok(out)) = (fcntl_getfl(stdout.as_fd()), fstat(stdout.as_fd())) else {
        return true;
    };
    // Before `main` a stdout that is closed becomes /dev/null, open in both directions. Whoever
    // writes `> /dev/null` opens it for writing only.
    let is_null = stat("/dev/null").is_ok_and(|null| null.st_rdev == out.st_rdev);
    is_null && flags & OFlags::RWMODE == OFlags::RDWR
}

/// Ends when whoever reads stdout is gone, even while there is nothing to write.
pub(crate) async fn nobody_listens() {
    let (tell, told) = oneshot::channel();
    let watch = move || {
        if is_hung_up() {
            let _ = tell.send(());
        }
    };
    // The thread ends with the process at the latest.
    let watching = std::thread::Builder::new().name("stdout".to_owned()).spawn(watch);
    if watching.is_err() || told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Blocks until stdout has no reader; false if that cannot be told.
fn is_hung_up() -> bool {
    let stdout = io::stdout();
    loop {
        // Nothing is asked for: what ends the wait is only what nobody can ask for.
        let mut watched = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty())];
        match poll(&mut watched, None) {
            Ok(_) if !watched[0].revents().is_empty() => return true,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Says what went wrong: in words, or as one line of JSON.
pub(crate) fn complain(error: &Error, is_json: bool) {
    if is_json {
        let (kind, message) = (format!("{:?}", error.kind()), format!("{error:#}"));
        let document = serde_json::json!({ "error": { "kind": kind, "message": message } });
        say(&document.to_string());
    } else {
        say(&format!("{TROUBLE}mailbox:{TROUBLE:#} {}", worded(error)));
    }
}

/// An error in words, with the flag that it is about.
pub(crate) fn worded(error: &Error) -> String {
    let below = std::error::Error::source(error).and_then(|it| it.downcast_ref::<Error>());
    let field = error.field().or_else(|| below.and_then(Error::field));
    match field.and_then(flag) {
        Some(flag) => format!("{error:#} ({flag})"),
        None => format!("{error:#}"),
    }
}

/// How an argument is called on the command line, where the library calls it otherwise.
fn flag(field: &str) -> Option<&'static str> {
    Some(match field {
        "max_messages" => "--max",
        "visibility_timeout" => "--visibility",
        "delay" | "nack delay" => "--delay",
        "idempotency_key" => "--key",
        "group" => "--group",
        "reply_to" => "--reply-to",
        "attributes" | "attribute key" | "attribute value" => "--attr",
        _ => return None,
    })
}

/// Says something to people.
pub(crate) fn say(text: &str) {
    // If nobody listens there is nobody to tell.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Lines up columns: text to the left, numbers to the right. The first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let is_words = WORDS.contains(&rows[0][column].as_str());
            let is_number = !is_words
                && rows.iter().skip(1).all(|row| {
                    row.get(column).is_none_or(|cell| cell.chars().all(|it| it.is_ascii_digit()))
                });
            line.push(' ');
            if is_number {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        let line = line.trim_end();
        if number == 0 {
            text.push_str(&format!("{HEADING}{line}{HEADING:#}"));
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// Text of a stranger on one line of a terminal: short, and without anything that controls it.
pub(crate) fn tamed(text: &str, most: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(most)
        .map(|letter| if letter.is_control() || is_invisible(letter) { ' ' } else { letter })
        .collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown.trim().to_owned()
}

/// Letters that change the direction of others, or are not seen at all.
const fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_cannot_control_the_terminal() {
        assert_eq!(tamed("a\u{1b}[31mb\nc\u{202e}d", 80), "a [31mb c d");
        assert_eq!(tamed(&"x".repeat(100), 3), "xxx…");
        assert_eq!(tamed("xxx", 3), "xxx");
    }
}

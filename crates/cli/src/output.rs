//! Where words go: what was asked for to stdout, everything else to stderr.

use std::io::{self, Write};

use mailbox::{Error, Result};
use serde::Serialize;

use crate::exit::unwritten;

/// Prints text that was asked for. A reader that has heard enough is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(error)),
        _ => Ok(()),
    }
}

/// Prints one JSON document.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| unwritten(io::Error::other(error)))?;
    print(&(text + "\n"))
}

/// Says what went wrong: in words, or as one line of JSON.
pub(crate) fn complain(error: &Error, is_json: bool) {
    if is_json {
        let (kind, message) = (format!("{:?}", error.kind()), format!("{error:#}"));
        let document = serde_json::json!({ "error": { "kind": kind, "message": message } });
        say(&document.to_string());
    } else {
        say(&format!("mailbox: {error:#}"));
    }
}

/// Says something to people.
pub(crate) fn say(text: &str) {
    // If nobody listens there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Lines up columns: text to the left, numbers to the right. The first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let is_number = rows.iter().skip(1).all(|row| {
                row.get(column).is_none_or(|cell| cell.chars().all(|it| it.is_ascii_digit()))
            });
            line.push(' ');
            if is_number {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

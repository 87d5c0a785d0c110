//! A transcript of commands and what they said, for snapshots: what differs from run to run is
//! replaced by a name, the same thing always by the same name.

use std::fmt::Write;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;

use super::{Ran, binary, output_of};

/// Runs commands one after the other, in a directory of their own.
pub(crate) struct Story {
    dir: TempDir,
    names: Vec<(String, String)>,
    text: String,
}

impl Story {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), names: Vec::new(), text: String::new() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a command and writes down what it said.
    pub(crate) fn run(&mut self, arguments: &[&str]) -> Ran {
        self.feed(arguments, b"")
    }

    /// The same, with something on stdin.
    pub(crate) fn feed(&mut self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = binary()
            .current_dir(self.dir.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(input);
        let ran = output_of(child);
        self.record(arguments, &ran);
        ran
    }

    fn record(&mut self, arguments: &[&str], ran: &Ran) {
        let quoted = |argument: &&str| match argument.contains([' ', '"', '{']) {
            true => format!("'{argument}'"),
            false => (*argument).to_owned(),
        };
        let command: Vec<String> = arguments.iter().map(quoted).collect();
        let command = self.redacted(&command.join(" "));
        let (stdout, stderr) = (self.redacted(&ran.stdout), self.redacted(&ran.stderr));
        let _ = writeln!(self.text, "$ mailbox {command}");
        for line in stdout.lines() {
            let _ = writeln!(self.text, "{line}");
        }
        for line in stderr.lines() {
            let _ = writeln!(self.text, "! {line}");
        }
        match ran.code {
            Some(0) => {}
            Some(code) => drop(writeln!(self.text, "=> {code}")),
            None => drop(writeln!(self.text, "=> killed")),
        }
    }

    /// What was said, with names for what differs.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn redacted(&mut self, text: &str) -> String {
        let dir = self.dir.path().canonicalize().unwrap();
        let text = text.replace(dir.to_str().unwrap(), "<DIR>");
        let mut redacted = String::new();
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "-:.".contains(letter);
        let mut rest = text.as_str();
        while let Some(start) = rest.find(is_word) {
            redacted.push_str(&rest[..start]);
            let end = rest[start..].find(|letter| !is_word(letter));
            let end = end.map_or(rest.len(), |end| start + end);
            redacted.push_str(&self.named(&rest[start..end]));
            rest = &rest[end..];
        }
        redacted.push_str(rest);
        ages(&redacted)
    }

    fn named(&mut self, word: &str) -> String {
        let bare = word.trim_end_matches([':', '.']);
        let kind = match bare.len() {
            24 if bare.ends_with('Z') && bare.as_bytes()[10] == b'T' => {
                return word.replace(bare, "<TIME>");
            }
            26 if bare.bytes().all(|it| it.is_ascii_digit() || it.is_ascii_uppercase()) => "ID",
            72 if bare.bytes().all(|it| it.is_ascii_hexdigit()) => "ID",
            _ => return word.to_owned(),
        };
        let known = self.names.iter().position(|(known, _)| known == bare);
        let index = known.unwrap_or_else(|| {
            let name = format!("<{kind}{}>", self.names.len() + 1);
            self.names.push((bare.to_owned(), name));
            self.names.len() - 1
        });
        word.replace(bare, &self.names[index].1)
    }
}

/// Replaces what depends on how quick the machine is.
fn ages(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let line = match line.split_once("the oldest was sent ") {
            Some((before, _)) => format!("{before}the oldest was sent <AGE> ago"),
            None => line.to_owned(),
        };
        let line = match line.split_once("_ms\": ") {
            Some((before, after)) => {
                let number = after.trim_end_matches(',');
                let comma = &after[number.len()..];
                let shown = if number == "0" || number == "null" { number } else { "<MS>" };
                format!("{before}_ms\": {shown}{comma}")
            }
            None => line,
        };
        lines.push(line);
    }
    lines.join("\n")
}

/// Compares a story with the one that is kept.
macro_rules! assert_story {
    ($name:expr, $story:expr) => {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!($name, $story.text());
        });
    };
}

pub(crate) use assert_story;

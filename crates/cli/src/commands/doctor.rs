//! `mailbox doctor`: looks at a journal that nobody has open, and saves what can be read.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mailbox::backends::journal::disk::Disk;
use mailbox::backends::journal::doctor::{
    MailboxReport, Problem, Repaired, Report, ShardReport, examine, repair,
};
use mailbox::{Address, Error, ErrorKind, Result};
use serde::Serialize;

use crate::args::Doctor;
use crate::exit::Outcome;
use crate::output;
use crate::reading::ReadingDisk;
use crate::shown::counted;

/// Problems that are printed one by one for people; `--json` has all of them.
const SHOWN: usize = 50;

/// The file that makes a directory a journal.
const META: &str = "meta";
/// Entries of a directory among which inboxes are looked for.
const LOOKED_AT: usize = 1_000;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<&'a Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<&'a Repaired>,
}

pub(super) fn run(args: &Doctor) -> Result<Outcome> {
    let disk: Arc<dyn Disk> = Arc::new(ReadingDisk::default());
    let path = directory(&args.path)?;
    let report = match examine(&path, &disk) {
        // A repair that was cut short at its very end has left no journal under this name.
        Err(error) if error.kind() == ErrorKind::NotFound && args.repair => {
            let repaired = repair(&path, args.into.as_deref(), &disk)
                .map_err(|other| if other.kind() == ErrorKind::NotFound { error } else { other })?;
            return show(args, None, Some(&repaired)).map(|()| Outcome::Done);
        }
        report => report.map_err(|error| neither(error, &path))?,
    };
    if report.sound || !args.repair {
        show(args, Some(&report), None)?;
        if report.sound && args.repair && !args.json {
            output::say("nothing to repair");
        }
        let is_sound = report.sound;
        return Ok(if is_sound { Outcome::Done } else { Outcome::Found(ErrorKind::Integrity) });
    }
    let repaired = repair(&path, args.into.as_deref(), &disk)?;
    show(args, Some(&report), Some(&repaired))?;
    Ok(Outcome::Done)
}

/// A directory that is not a journal is no inbox either; but there may be some in it.
fn neither(error: Error, path: &Path) -> Error {
    let is_about_it = error.kind() == ErrorKind::InvalidParameter && path.is_dir();
    // Whoever named a part of a journal has been told so.
    let is_in_journal = path.join(META).exists() || path.join("..").join(META).exists();
    if !is_about_it || is_in_journal {
        return error;
    }
    let mut message = format!("{error}; nor is it an inbox: there is no incoming/ in it");
    let has_inboxes = fs::read_dir(path).is_ok_and(|entries| {
        entries.take(LOOKED_AT).flatten().any(|entry| entry.path().join("incoming").is_dir())
    });
    if has_inboxes {
        let _ = write!(message, "; for those in it see `mailbox list dir:{}`", path.display());
    }
    Error::new(error.kind(), message).with_field("path")
}

/// The directory that is meant: the path, or that of the journal in an address.
fn directory(path: &Path) -> Result<PathBuf> {
    if let Some(text) = path.to_str()
        && !path.exists()
        && !text.starts_with("journal:")
        && Address::has_scheme(text)
    {
        let message = "doctor takes the directory of a journal or of an inbox, journal:PATH/NAME \
                       or dir:PATH/NAME";
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("path"));
    }
    let address = path.to_str().filter(|text| text.starts_with("journal:") && !path.exists());
    let Some(address) = address else { return Ok(path.to_owned()) };
    let hint = || {
        let message = format!("{address}: name the directory of the journal, or journal:PATH/NAME");
        Error::new(ErrorKind::InvalidParameter, message).with_field("path")
    };
    let parsed = Address::parse(address).map_err(|error| hint().with_source(error))?;
    if parsed.place().is_empty() { Err(hint()) } else { Ok(parsed.place().into()) }
}

fn show(args: &Doctor, report: Option<&Report>, repaired: Option<&Repaired>) -> Result<()> {
    if args.json {
        return output::print_json(&Document { report, repaired });
    }
    let mut text = String::new();
    if let Some(report) = report {
        describe(report, args.repair, &mut text);
    }
    if let Some(repaired) = repaired {
        describe_repair(repaired, &mut text);
    }
    output::print(&text)
}

/// Writing to a string does not fail.
macro_rules! line {
    ($text:expr, $($words:tt)*) => {
        let _ = writeln!($text, $($words)*);
    };
}

fn describe(report: &Report, is_repaired: bool, text: &mut String) {
    let state = if report.sound { "sound" } else { "DAMAGED" };
    line!(text, "{}: {state}", report.path.display());
    for shard in &report.shards {
        describe_shard(shard, text);
    }
    if !report.problems.is_empty() {
        line!(text, "\nproblems:");
    }
    for problem in report.problems.iter().take(SHOWN) {
        line!(text, "  {}", told(problem));
    }
    let unshown = report.problems.len().saturating_sub(SHOWN) as u64 + report.further_problems;
    if unshown > 0 {
        line!(text, "  and {unshown} more");
    }
    if !report.remarks.is_empty() {
        line!(text, "\nremarks:");
    }
    for remark in report.remarks.iter().take(SHOWN) {
        line!(text, "  {}{}: {}", remark.file, at(remark.offset), remark.what);
    }
    if !report.sound {
        line!(
            text,
            "\n{}, and {} known but cannot be read",
            lost(report.lost_records),
            counted(report.unreadable_messages, "message is", "messages are")
        );
    }
    if !report.sound && !is_repaired {
        line!(
            text,
            "`mailbox doctor {} --repair` saves what can be read, and keeps the damaged journal",
            report.path.display()
        );
    }
}

fn describe_shard(shard: &ShardReport, text: &mut String) {
    let ended = if shard.closed { "closed in order" } else { "not closed in order" };
    line!(text, "\nshard {}: {ended}, last record {}", shard.shard, shard.last_lsn);
    let heading = ["segment", "bytes", "records", "batches", "live bytes", "state"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(shard.segments.iter().map(|segment| {
        vec![
            segment.file.clone(),
            segment.bytes.to_string(),
            segment.records.to_string(),
            segment.batches.to_string(),
            segment.live_bytes.to_string(),
            segment.state.as_str().to_owned(),
        ]
    }));
    text.push_str(&output::table(&rows));
    if shard.mailboxes.is_empty() {
        return;
    }
    let heading = ["mailbox", "live", "delayed", "invisible", "dead", "bytes", "keys", "rules"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(shard.mailboxes.iter().map(mailbox_row));
    text.push_str(&output::table(&rows));
}

fn mailbox_row(mailbox: &MailboxReport) -> Vec<String> {
    let name = mailbox.name.clone().unwrap_or_else(|| format!("(number {})", mailbox.number));
    let rules: Vec<String> =
        mailbox.policy.iter().map(|(rule, value)| format!("{rule}={value}")).collect();
    vec![
        name,
        mailbox.live.to_string(),
        mailbox.delayed.to_string(),
        mailbox.invisible.to_string(),
        mailbox.dead.to_string(),
        mailbox.bytes.to_string(),
        mailbox.keys.to_string(),
        if rules.is_empty() { "default".to_owned() } else { rules.join(" ") },
    ]
}

fn told(problem: &Problem) -> String {
    let mut text = format!("{}{}: {}", problem.file, at(problem.offset), problem.what);
    if let Some(lost) = problem.lost {
        let _ = write!(text, "; records {} to {} are lost", lost.from, lost.to);
    }
    text
}

fn at(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}

fn describe_repair(repaired: &Repaired, text: &mut String) {
    line!(text, "\nrepaired: {}", repaired.path.display());
    let mailboxes = counted(repaired.mailboxes, "mailbox", "mailboxes");
    let messages = counted(repaired.messages, "message", "messages");
    line!(text, "  {mailboxes}, {messages} saved");
    if repaired.unreadable > 0 {
        line!(
            text,
            "  {} cannot be read: now dead letters with the reason integrity",
            counted(repaired.unreadable, "message", "messages")
        );
    }
    if repaired.keys > 0 {
        let keys = counted(repaired.keys, "idempotency key", "idempotency keys");
        line!(text, "  {keys} saved");
    }
    if repaired.lost_records != Some(0) {
        line!(
            text,
            "  {}: messages that were only sent there are gone, and those that were acknowledged \
             there may be delivered again",
            lost(repaired.lost_records)
        );
    }
    for name in &repaired.renamed {
        line!(text, "  a mailbox whose name is lost is now called {name}");
    }
    if repaired.new_secret {
        line!(text, "  the secret is lost: receipt handles from before do not work any more");
    }
    line!(text, "the damaged journal is kept: {}", shown(&repaired.original));
}

fn lost(records: Option<u64>) -> String {
    records.map_or_else(
        || "an unknown number of records is lost".to_owned(),
        |records| format!("{} lost", counted(records, "record is", "records are")),
    )
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

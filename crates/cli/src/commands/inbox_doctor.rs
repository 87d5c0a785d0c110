//! `mailbox doctor dir:PATH/NAME`: reads every file of an inbox and says what is wrong.

use std::fmt::Write;
use std::path::Path;

use mailbox::backends::directory::InboxReport;
use mailbox::{Address, Backend, Error, ErrorKind, Result};

use super::init::open;
use crate::args::Doctor;
use crate::exit::Outcome;
use crate::{output, place};

/// Problems that are printed one by one for people; `--json` has more of them.
const SHOWN: usize = 50;

/// The inbox that is meant, if it is one: by its address, or by its folder.
pub(super) fn meant(args: &Doctor) -> Result<Option<Address>> {
    let text = args.path.to_str().unwrap_or_default();
    let is_inbox =
        |folder: &Path| folder.join("incoming").is_dir() || folder.join("inbox.json").is_file();
    let address = if text.starts_with("dir:") && !args.path.exists() {
        place::read(text)?
    } else if is_inbox(&args.path) {
        let path = args.path.canonicalize().map_err(|error| {
            Error::new(ErrorKind::Internal, "the inbox cannot be found").with_source(error)
        })?;
        Address::parse(&format!("dir:{}", path.display()))?
    } else {
        return Ok(None);
    };
    if args.into.is_some() {
        let message =
            "--into is for journals: an inbox is repaired where it is, nothing is deleted";
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("into"));
    }
    Ok(Some(address))
}

pub(super) async fn run(args: &Doctor, inbox: &Address) -> Result<Outcome> {
    let place = Path::new(if inbox.place().is_empty() { "." } else { inbox.place() });
    if !place.is_dir() {
        let message = format!("{inbox}: nothing there");
        return Err(Error::new(ErrorKind::NotFound, message).with_field("address"));
    }
    let backend = open(inbox).await?;
    let report = backend.examine(inbox.name(), args.repair).await;
    let closed = backend.close().await;
    let report = report?;
    closed?;
    if args.json {
        output::print_json(&serde_json::json!({ "report": report }))?;
    } else {
        output::print(&described(&report, args.repair))?;
    }
    Ok(if report.sound { Outcome::Done } else { Outcome::Found(ErrorKind::Integrity) })
}

fn described(report: &InboxReport, is_repaired: bool) -> String {
    let state = if report.sound { "sound" } else { "NOT SOUND" };
    let shards = if report.shards > 0 { " in 64 folders" } else { "" };
    let mut text = format!("{}: {state}{shards}\n", report.path.display());
    let row = |what: &str, count: u64| vec![what.to_owned(), count.to_string()];
    text.push_str(&output::table(&[
        vec!["folder".to_owned(), "files".to_owned()],
        row("incoming", report.incoming),
        row("processing", report.processing),
        row("done", report.done),
        row("dead-letter", report.dead),
        row("aside", report.set_aside),
        row("incoming/.tmp", report.unfinished),
    ]));
    if !report.sound {
        // Writing to a string does not fail.
        let which = if is_repaired { "problems that remain" } else { "problems" };
        let _ = writeln!(text, "\n{which}:");
    }
    for problem in report.problems.iter().take(SHOWN) {
        let (file, what) = (output::tamed(&problem.file, 255), output::tamed(&problem.what, 300));
        let _ = writeln!(text, "  {file}: {what}");
    }
    let unshown = report.problems.len().saturating_sub(SHOWN) as u64 + report.further_problems;
    if unshown > 0 {
        let _ = writeln!(text, "  and {unshown} more");
    }
    if is_repaired {
        let _ = writeln!(text, "\nput right: {}", report.repaired);
    } else if !report.sound {
        let _ = writeln!(text, "\n--repair puts right what can be put right; nothing is deleted");
    }
    text
}

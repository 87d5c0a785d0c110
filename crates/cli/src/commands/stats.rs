//! `mailbox stats`: how many messages are in which state, and what has happened so far.

use std::time::Duration;

use mailbox::{Abilities, Result, Stats};
use serde::Serialize;

use crate::args;
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making};
use crate::shown::{counted, time};

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    mailbox: String,
    backend: &'static str,
    durability: &'static str,
    count: u64,
    delayed: u64,
    ready: u64,
    invisible: u64,
    dead: u64,
    oldest_age_ms: Option<u64>,
    dedup_entries: u64,
    set_aside: u64,
    expires_in_ms: Option<u64>,
    totals: Option<Totals>,
}

#[derive(Serialize)]
struct Totals {
    sent: u64,
    delivered: u64,
    redelivered: u64,
    timed_out: u64,
    acknowledged: u64,
    dead_lettered: u64,
    redriven: u64,
    purged: u64,
    retention_dropped: u64,
}

pub(super) async fn run(args: &args::Stats) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        if !args.json {
            place.note_absence().await?;
        }
        let stats = place.backend.stats(&place.name).await?;
        let abilities = place.backend.abilities();
        if args.json {
            output::print_json(&document(place.known_as(), abilities, &stats))?;
        } else {
            output::print(&described(&place.known_as(), abilities, &stats))?;
        }
        Ok(Outcome::Done)
    })
    .await
}

fn document(mailbox: String, abilities: &Abilities, stats: &Stats) -> Document {
    let totals = &stats.totals;
    Document {
        mailbox,
        backend: abilities.backend,
        durability: stats.durability.as_str(),
        count: stats.live(),
        delayed: stats.delayed,
        ready: stats.ready,
        invisible: stats.invisible,
        dead: stats.dead,
        oldest_age_ms: stats.oldest_age.map(millis),
        dedup_entries: stats.dedup_entries,
        set_aside: stats.set_aside,
        expires_in_ms: stats.expires_in.map(millis),
        totals: abilities.totals.then_some(Totals {
            sent: totals.sent,
            delivered: totals.delivered,
            redelivered: totals.redelivered,
            timed_out: totals.timed_out,
            acknowledged: totals.acknowledged,
            dead_lettered: totals.dead_lettered,
            redriven: totals.redriven,
            purged: totals.purged,
            retention_dropped: totals.retention_dropped,
        }),
    }
}

fn described(mailbox: &str, abilities: &Abilities, stats: &Stats) -> String {
    let row = |what: &str, count: u64| vec![what.to_owned(), count.to_string()];
    let heading = |what: &str| vec![what.to_owned(), "messages".to_owned()];
    let mut text = format!("{mailbox}\n");
    text.push_str(&output::table(&[
        heading("now"),
        row("delayed", stats.delayed),
        row("ready", stats.ready),
        row("invisible", stats.invisible),
        row("dead", stats.dead),
    ]));
    if let Some(age) = stats.oldest_age {
        text.push_str(&format!("  the oldest was sent {} ago\n", time(age)));
    }
    if stats.set_aside > 0 {
        let files = counted(stats.set_aside, "file is no message", "files are no messages");
        text.push_str(&format!("  {files}: set aside\n"));
    }
    let totals = &stats.totals;
    if abilities.totals {
        text.push_str(&output::table(&[
            heading("so far"),
            row("sent", totals.sent),
            row("delivered", totals.delivered),
            row("redelivered", totals.redelivered),
            row("timed out", totals.timed_out),
            row("acknowledged", totals.acknowledged),
            row("dead-lettered", totals.dead_lettered),
            row("redriven", totals.redriven),
            row("purged", totals.purged),
            row("dropped by retention", totals.retention_dropped),
        ]));
    }
    text.push_str(&format!("  kept by {}, durability {}\n", abilities.backend, stats.durability));
    if let Some(expires_in) = stats.expires_in {
        let left = time(expires_in);
        text.push_str(&format!("  deleted with its messages if nobody uses it for {left}\n"));
    }
    text
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

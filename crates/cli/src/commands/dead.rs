//! `mailbox dead`: dead letters are listed, shown, redriven or deleted.

use mailbox::{Error, ErrorKind, MessageId, Peek, Phase, Record, Result, Selection};
use serde_json::json;

use super::confirm::confirm;
use crate::args::{Dead, DeadCommand, DeadDelete, DeadList, DeadRedrive, DeadShow, Which};
use crate::exit::Outcome;
use crate::output::{self, tamed};
use crate::place::{self, Making, Place};
use crate::shown::{counted, preview};

pub(super) async fn run(args: &Dead) -> Result<Outcome> {
    match &args.command {
        DeadCommand::List(args) => list(args).await,
        DeadCommand::Show(args) => show(args).await,
        DeadCommand::Redrive(args) => redrive(args).await,
        DeadCommand::Delete(args) => delete(args).await,
    }
}

async fn list(args: &DeadList) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        if !args.json {
            place.note_absence().await?;
        }
        let mut found = Vec::new();
        let mut pages = Pages::new(place);
        while (found.len() as u64) < args.max {
            let page = pages.next().await?;
            if page.is_empty() {
                break;
            }
            let is_wanted = |record: &Record| {
                args.reason.is_none_or(|reason| record.death.is_some_and(|it| it.reason == reason))
            };
            found.extend(page.into_iter().filter(is_wanted));
        }
        found.truncate(usize::try_from(args.max).unwrap_or(usize::MAX));
        if args.json {
            super::peek::print_json(&found)?;
        } else if !found.is_empty() {
            output::print(&output::table(&rows(&found)))?;
        }
        Ok(Outcome::Done)
    })
    .await
}

/// All dead letters, page by page, the oldest first.
pub(super) struct Pages<'a> {
    place: &'a Place,
    after: Option<u64>,
    /// How many there are in a page: fewer, if they are large.
    limit: u32,
}

impl<'a> Pages<'a> {
    pub(super) fn new(place: &'a Place) -> Self {
        Self { place, after: None, limit: place.backend.abilities().max_messages }
    }

    /// The next page; an empty one is the end.
    pub(super) async fn next(&mut self) -> Result<Vec<Record>> {
        let records = loop {
            let page = Peek::Dead { after: self.after, limit: self.limit };
            match self.place.backend.peek(&self.place.name, &page).await {
                Ok(records) => break records,
                // Too many at a time for whoever is in between.
                Err(error) if error.kind() == ErrorKind::TooLarge && self.limit > 1 => {
                    self.limit /= 2;
                }
                Err(error) => return Err(error),
            }
        };
        let last = records.iter().filter_map(|record| record.death.map(|it| it.order)).max();
        if last <= self.after {
            // Nothing behind what was already seen.
            return Ok(Vec::new());
        }
        self.after = last;
        Ok(records)
    }
}

fn rows(records: &[Record]) -> Vec<Vec<String>> {
    let heading = ["id", "reason", "died", "deliveries", "bytes", "payload", "last error"];
    let row = |record: &Record| {
        let died = record.death.map(|it| (it.reason.as_str().to_owned(), it.at.to_string()));
        let (reason, at) = died.unwrap_or_default();
        vec![
            tamed(&record.id.to_string(), 80),
            reason,
            at,
            record.delivery_count.to_string(),
            record.letter.payload.len().to_string(),
            preview(&record.letter.payload),
            tamed(record.last_error.as_deref().unwrap_or_default(), 60),
        ]
    };
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(records.iter().map(row));
    rows
}

async fn show(args: &DeadShow) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        let records = super::peek::these(place, &args.ids).await?;
        if let Some(alive) = records.iter().find(|record| record.phase != Phase::Dead) {
            let message = format!("message {} is no dead letter", alive.id);
            return Err(Error::new(ErrorKind::NotFound, message).with_mailbox(&place.name));
        }
        if args.json {
            super::peek::print_json(&records)?;
            return Ok(Outcome::Done);
        }
        for record in &records {
            let mut bytes = record.letter.payload.to_vec();
            if bytes.last() != Some(&b'\n') {
                bytes.push(b'\n');
            }
            output::write(&bytes)?;
            let Some(death) = &record.death else { continue };
            let (id, reason, at) = (&record.id, death.reason.as_str(), death.at);
            let error = record.last_error.as_deref().map(|it| format!(": {}", tamed(it, 400)));
            let error = error.unwrap_or_default();
            let count = counted(record.delivery_count.into(), "delivery", "deliveries");
            output::say(&format!("{id}: {reason} at {at} after {count}{error}"));
        }
        Ok(Outcome::Done)
    })
    .await
}

fn selection(which: &Which) -> Selection {
    if let Some(reason) = which.reason {
        Selection::Reason(reason)
    } else if let Some(count) = which.oldest {
        Selection::Oldest(count)
    } else if which.all {
        Selection::All
    } else {
        Selection::These(which.ids.iter().map(|id| MessageId::from_text(id)).collect())
    }
}

async fn redrive(args: &DeadRedrive) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        let redriven = place.backend.redrive(&place.name, &selection(&args.which)).await?;
        count("redriven", redriven, args.json)
    })
    .await
}

async fn delete(args: &DeadDelete) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        let which = selection(&args.which);
        if !matches!(which, Selection::These(_)) {
            let dead = place.backend.stats(&place.name).await?.dead;
            let which = match &which {
                Selection::Reason(reason) => format!("those that died of {}", reason.as_str()),
                Selection::Oldest(count) => format!("the oldest {count}"),
                _ => "all".to_owned(),
            };
            let known_as = place.known_as();
            let dead = counted(dead, "dead letter", "dead letters");
            let question = format!("Delete {which} of the {dead} of {known_as}?");
            if !confirm(&question, args.yes)? {
                output::say("nothing was deleted");
                return Ok(Outcome::Interrupted);
            }
        }
        let deleted = place.backend.delete_dead(&place.name, &which).await?;
        count("deleted", deleted, args.json)
    })
    .await
}

fn count(what: &str, count: u64, is_json: bool) -> Result<Outcome> {
    if is_json {
        output::print_json_line(&json!({ what: count }))?;
    } else {
        output::print(&format!("{count}\n"))?;
    }
    Ok(Outcome::Done)
}

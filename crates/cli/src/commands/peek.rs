//! `mailbox peek`: shows messages without receiving them.

use mailbox::{Error, ErrorKind, MessageId, Record, Result};

use crate::args::Peek;
use crate::exit::Outcome;
use crate::output::{self, Heard};
use crate::place::{self, Making, Place};
use crate::shown::{Seen, preview, state, time};

pub(super) async fn run(args: &Peek) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        if !args.json {
            place.note_absence().await?;
        }
        let records = if args.ids.is_empty() {
            let limit = args.max.min(place.backend.abilities().max_messages);
            place.backend.peek(&place.name, &mailbox::Peek::Live { limit }).await?
        } else {
            these(place, &args.ids).await?
        };
        if args.json {
            print_json(&records)?;
        } else if !records.is_empty() {
            output::print(&output::table(&rows(&records)))?;
        }
        Ok(Outcome::Done)
    })
    .await
}

/// The messages with these ids, in that order. All of them must be there.
pub(super) async fn these(place: &Place, ids: &[String]) -> Result<Vec<Record>> {
    let ids: Vec<MessageId> = ids.iter().map(|id| MessageId::from_text(id)).collect();
    let mut found = Vec::new();
    let mut limit = place.backend.abilities().max_messages.max(1) as usize;
    let mut rest = ids.as_slice();
    while !rest.is_empty() {
        let some = &rest[..limit.min(rest.len())];
        match place.backend.peek(&place.name, &mailbox::Peek::These(some.to_vec())).await {
            Ok(records) => {
                found.extend(records);
                rest = &rest[some.len()..];
            }
            // Too many at a time for whoever is in between.
            Err(error) if error.kind() == ErrorKind::TooLarge && limit > 1 => limit /= 2,
            Err(error) => return Err(error),
        }
    }
    match ids.iter().find(|id| !found.iter().any(|record| record.id == **id)) {
        None => Ok(found),
        Some(missing) => Err(gone(place, missing)),
    }
}

fn gone(place: &Place, id: &MessageId) -> Error {
    let id = output::tamed(&id.to_string(), 80);
    let message = format!("message {id} is not here: acknowledged, deleted, or never sent");
    Error::new(ErrorKind::NotFound, message).with_mailbox(&place.name)
}

pub(super) fn print_json(records: &[Record]) -> Result<()> {
    for record in records {
        if output::print_json_line(&Seen::new(record))? == Heard::Gone {
            break;
        }
    }
    Ok(())
}

fn rows(records: &[Record]) -> Vec<Vec<String>> {
    let heading = ["id", "state", "deliveries", "sent", "receivable", "bytes", "payload"];
    let row = |record: &Record| {
        let receivable = match record.receivable_in {
            wait if wait.is_zero() => "now".to_owned(),
            wait => format!("in {}", time(wait)),
        };
        vec![
            output::tamed(&record.id.to_string(), 80),
            state(record.phase).to_owned(),
            record.delivery_count.to_string(),
            record.letter.enqueued_at.to_string(),
            if record.death.is_some() { "never".to_owned() } else { receivable },
            record.letter.payload.len().to_string(),
            preview(&record.letter.payload),
        ]
    };
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(records.iter().map(row));
    rows
}

//! `mailbox list`: the mailboxes of a place, page by page.

use mailbox::{Name, Result};
use serde_json::json;

use crate::args::List;
use crate::exit::Outcome;
use crate::output::{self, Heard};
use crate::place::{self, Making, Place};

/// Names in one page.
const PAGE: usize = 1_000;

pub(super) async fn run(args: &List) -> Result<Outcome> {
    let address = match &args.place {
        Some(place) => place::read_place(place)?,
        None => place::local_place()?,
    };
    let place = Place::open(address, Making::No).await?;
    let listed = pages(args, &place).await;
    let closed = place.backend.close().await;
    listed?;
    closed.map(|()| Outcome::Done)
}

async fn pages(args: &List, place: &Place) -> Result<()> {
    let mut after: Option<Name> = None;
    loop {
        let names = place.backend.list(after.as_ref(), PAGE).await?;
        for name in &names {
            let heard = if args.json {
                let address = place.address_of(name);
                output::print_json_line(&json!({ "name": name.as_str(), "address": address }))?
            } else {
                output::write(format!("{name}\n").as_bytes())?
            };
            if heard == Heard::Gone {
                return Ok(());
            }
        }
        // A page that does not go on behind the last one would go on forever.
        let is_last = names.len() < PAGE;
        match names.last() {
            Some(last) if !is_last && after.as_ref() < Some(last) => after = Some(last.clone()),
            _ => return Ok(()),
        }
    }
}

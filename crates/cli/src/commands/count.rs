//! `mailbox count`: how many messages there are.

use mailbox::Result;
use serde_json::json;

use crate::args::Count;
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making};

pub(super) async fn run(args: &Count) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        if !args.json {
            place.note_absence().await?;
        }
        let count = place.backend.stats(&place.name).await?.live();
        if args.json {
            output::print_json_line(&json!({ "count": count }))?;
        } else {
            output::print(&format!("{count}\n"))?;
        }
        Ok(Outcome::Done)
    })
    .await
}

//! `mailbox purge`: deletes every message but dead letters.

use mailbox::Result;
use serde_json::json;

use super::confirm::confirm;
use crate::args::Purge;
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making};
use crate::shown::counted;

pub(super) async fn run(args: &Purge) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        if !args.json {
            place.note_absence().await?;
        }
        let count = place.backend.stats(&place.name).await?.live();
        let question =
            format!("Delete {} of {}?", counted(count, "message", "messages"), place.known_as());
        if !confirm(&question, args.yes)? {
            output::say("nothing was deleted");
            return Ok(Outcome::Interrupted);
        }
        let purged = place.backend.purge(&place.name).await?;
        if args.json {
            output::print_json_line(&json!({ "purged": purged }))?;
        } else {
            output::print(&format!("{purged}\n"))?;
        }
        Ok(Outcome::Done)
    })
    .await
}

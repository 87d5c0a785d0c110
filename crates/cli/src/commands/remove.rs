//! `mailbox remove`: removes a mailbox with everything in it.

use mailbox::{Error, ErrorKind, Result};
use serde_json::json;

use super::confirm::confirm;
use crate::args::Remove;
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making};
use crate::shown::counted;

pub(super) async fn run(args: &Remove) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        let stats = place.backend.stats(&place.name).await?;
        let (live, dead, known_as) = (stats.live(), stats.dead, place.known_as());
        let live = counted(live, "message", "messages");
        let dead = counted(dead, "dead letter", "dead letters");
        let question = format!("Remove {known_as} with {live} and {dead}?");
        if !confirm(&question, args.yes)? {
            output::say("nothing was removed");
            return Ok(Outcome::Interrupted);
        }
        if !place.backend.remove(&place.name).await? {
            let error = Error::new(ErrorKind::NotFound, "there is no such mailbox");
            return Err(error.with_mailbox(&place.name));
        }
        if args.json {
            output::print_json_line(&json!({ "removed": known_as }))?;
        } else {
            output::say(&format!("removed {known_as}"));
        }
        Ok(Outcome::Done)
    })
    .await
}

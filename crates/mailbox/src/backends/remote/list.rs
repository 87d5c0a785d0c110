//! The mailboxes of a service, page by page.

use mailbox_wire::call::{Request, TopicsRequest};
use mailbox_wire::json;

use super::Inner;
use super::calls::Again;
use super::convert;
use crate::error::Result;
use crate::name::Name;

/// Most names that are asked for at a time.
const PAGE: usize = 1000;

impl Inner {
    pub(super) async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let mut names: Vec<Name> = Vec::new();
        while names.len() < limit {
            let last = names.last().or(after);
            let most = (limit - names.len()).min(PAGE);
            let request = Request::Topics(TopicsRequest {
                after: last.map(ToString::to_string),
                limit: u32::try_from(most).ok(),
                stats: None,
            });
            let answer: json::Topics = self.calls.ask(&request, Again::Yes).await?;
            let page: Result<Vec<Name>> =
                answer.topics.iter().map(|entry| Name::parse(&entry.topic)).collect();
            let page = page.map_err(|error| convert::garbled("a name").with_source(error))?;
            // One that does not go on would be asked for again and again.
            let goes_on = page.is_empty() || page.last() > last;
            if !goes_on || page.len() > most {
                return Err(convert::garbled("a list that does not go on"));
            }
            let is_last = page.len() < most;
            names.extend(page);
            if is_last {
                break;
            }
        }
        Ok(names)
    }
}

//! Looking without changing anything.

use mailbox::{MessageId, Name, Peek, Record, Stats};
use mailbox_wire::capability::Op;

use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::service::Service;

/// Mailboxes among which a message is looked for that is named without one.
const SEARCHED: usize = 10_000;
/// Mailboxes that are read from the store at a time.
const PAGE: usize = 256;

impl Service {
    /// Messages of a mailbox.
    pub(crate) async fn peek(
        &self,
        caller: &Caller,
        mailbox: &Name,
        request: &Peek,
    ) -> Answer<Vec<Record>> {
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        Ok(self.store.peek(mailbox, request).await?)
    }

    /// One message, in whatever state, and the mailbox it is in.
    pub(crate) async fn find_message(
        &self,
        caller: &Caller,
        mailbox: Option<Name>,
        id: &MessageId,
    ) -> Answer<(Name, Record)> {
        // Before it is known whether there is such a message: that is a secret too.
        caller.may_some(Op::Admin)?;
        caller.charge(1, 0)?;
        let these = Peek::These(vec![id.clone()]);
        let is_named = mailbox.is_some();
        let last_seen = || self.handouts.last_of(id).map(|(mailbox, _)| mailbox);
        if let Some(mailbox) = mailbox.or_else(last_seen) {
            if is_named {
                caller.may(Op::Admin, Some(&mailbox), 0)?;
            } else if caller.may(Op::Admin, Some(&mailbox), 0).is_err() {
                return Err(gone());
            }
            let found = self.store.peek(&mailbox, &these).await?;
            let record = found.into_iter().next().ok_or_else(gone)?;
            return Ok((mailbox, record));
        }
        // Its id does not say where it is: look everywhere that the caller may look.
        let (mut after, mut searched) = (None::<Name>, 0);
        while searched < SEARCHED {
            let names = self.store.list(after.as_ref(), PAGE).await?;
            let Some(last) = names.last().cloned() else { break };
            searched += names.len();
            for mailbox in names {
                if caller.may(Op::Admin, Some(&mailbox), 0).is_err() {
                    continue;
                }
                if let Some(record) = self.store.peek(&mailbox, &these).await?.pop() {
                    return Ok((mailbox, record));
                }
            }
            after = Some(last);
        }
        Err(gone())
    }

    /// What is in a mailbox.
    pub(crate) async fn stats(&self, caller: &Caller, mailbox: &Name) -> Answer<Stats> {
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        Ok(self.store.stats(mailbox).await?)
    }

    /// Mailboxes that the caller may see, from behind `after`.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        after: Option<Name>,
        limit: usize,
    ) -> Answer<Vec<Name>> {
        caller.may_some(Op::Admin)?;
        caller.charge(1, 0)?;
        let (mut after, mut seen) = (after, Vec::new());
        for _ in 0..SEARCHED.div_ceil(PAGE) {
            let names = self.store.list(after.as_ref(), PAGE).await?;
            let Some(last) = names.last().cloned() else { break };
            let may_see = |name: &Name| caller.may(Op::Admin, Some(name), 0).is_ok();
            seen.extend(names.into_iter().filter(may_see));
            if seen.len() >= limit {
                seen.truncate(limit);
                break;
            }
            after = Some(last);
        }
        Ok(seen)
    }
}

fn gone() -> Failure {
    let message = "no such message: acknowledged, deleted, or never sent";
    Failure::new(mailbox::ErrorKind::NotFound, message)
}

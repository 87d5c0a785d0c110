//! Looking without changing anything.

use mailbox::{Error, ErrorKind, MessageId, Name, Peek, Record, Stats};
use mailbox_wire::capability::Op;

use super::weight;
use crate::admission::{Room, full};
use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::service::Service;

/// Mailboxes among which a message is looked for that is named without one.
const SEARCHED: usize = 10_000;
/// Most bytes of payloads and attributes that are shown at a time: as many as a client reads.
const SHOWN: u64 = 32 * 1024 * 1024;
/// Mailboxes that are read from the store at a time.
const PAGE: usize = 256;

impl Service {
    /// Messages of a mailbox.
    pub(crate) async fn peek(
        &self,
        caller: &Caller,
        mailbox: &Name,
        request: &Peek,
    ) -> Answer<(Vec<Record>, Room)> {
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        let records = self.store.peek(mailbox, request).await?;
        let room = self.room_for(caller, &records).map_err(|error| error.with_mailbox(mailbox))?;
        Ok((records, room))
    }

    /// Room for messages that are shown. They are shown as they were asked for, or not at all: one
    /// that is left out would look like one that is gone.
    pub(crate) fn room_for(&self, caller: &Caller, records: &[Record]) -> Result<Room, Error> {
        let bytes: u64 = records.iter().map(|it| weight(&it.letter)).sum();
        let most = SHOWN.min(self.admission.outgoing.most_each());
        if bytes > most {
            let message = format!(
                "{} messages have {bytes} bytes, more than the {most} that are shown at a time: \
                 ask for fewer",
                records.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, message).with_field("limit"));
        }
        let mut room = Room::default();
        if !room.grow(&self.admission.outgoing, &caller.verified.token_id, bytes) {
            return Err(full("too many answers are going out"));
        }
        Ok(room)
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
            } else if !caller.may_see(&mailbox) {
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
                if !caller.may_see(&mailbox) {
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
            seen.extend(names.into_iter().filter(|name| caller.may_see(name)));
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
    Failure::new(ErrorKind::NotFound, message)
}

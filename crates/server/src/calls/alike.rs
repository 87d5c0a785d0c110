//! Calls of one client that have come together, are of one kind and about one mailbox: the store is
//! asked once for all of them. Invariant: each is checked and answered as if it had come alone, and
//! what goes wrong with one is nothing to the others.

use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Ok as Done, SettleItem};

use super::several::joined;
use super::{purpose, wish};
use crate::admission::Purpose;
use crate::auth::Caller;
use crate::failure::Answer;
use crate::service::Service;

/// What calls have in common that are alike; nothing if there is none like this one.
pub(crate) fn likeness(request: &Request) -> Option<(Purpose, &str)> {
    match request {
        Request::Send(it) => Some((purpose(request), &it.topic)),
        Request::Settle(it) => {
            // The mailbox whose delivery it is, as its handle says.
            let (mailbox, _) = it.receipt_handle.as_deref()?.split_once('/')?;
            Some((purpose(request), mailbox))
        }
        _ => None,
    }
}

impl Service {
    /// Does what is asked, all of it alike; one answer each, in order.
    ///
    /// # Cancel safety
    /// What was begun may have taken effect.
    pub(crate) async fn answer_alike(
        &self,
        caller: &Caller,
        requests: Vec<Request>,
    ) -> Vec<Answer<Reply>> {
        let all = vec![Ok(()); requests.len()];
        let (mut messages, mut items) = (Vec::with_capacity(requests.len()), Vec::new());
        for request in requests {
            match request {
                Request::Send(it) => messages.push(it),
                Request::Settle(it) => items.push(it),
                // Nothing is like these.
                _ => {}
            }
        }
        if items.is_empty() {
            let sent = self.send_alike(caller, messages).await;
            joined(all, sent.into_iter().map(|sent| Ok(Reply::Sent(sent?))))
        } else {
            let calls = items.len();
            let settled = self.settle_each(caller, items, calls).await;
            let done = |it: Answer<()>| it.map(|()| Reply::Done(Done { ok: true }));
            joined(all, settled.into_iter().map(done))
        }
    }

    /// Settles what makes sense, as so many calls have asked for; what does not is refused by
    /// itself.
    pub(super) async fn settle_each(
        &self,
        caller: &Caller,
        items: Vec<SettleItem>,
        calls: usize,
    ) -> Vec<Answer<()>> {
        let mut good = Vec::with_capacity(items.len());
        let read = items.into_iter().map(|it| wish::item(it).map(|item| good.push(item)));
        let made_sense: Vec<Answer<()>> = read.collect();
        let count = good.len();
        caller.missed(made_sense.len() - count);
        if count == 0 {
            return made_sense;
        }
        let settled = self.settle(caller, good, calls).await;
        let settled = settled.unwrap_or_else(|failure| vec![Err(failure); count]);
        joined(made_sense, settled.into_iter())
    }
}

//! Settling: by receipt handle, or by message id if this service handed it out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mailbox::{DeadReason, Error, ErrorKind, MessageId, Name, Result, Settlement, Verdict};
use mailbox_wire::capability::{Op, Refused};

use super::Handle;
use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::handouts::Handout;
use crate::service::Service;

/// Which delivery.
#[derive(Debug, Clone)]
pub(crate) enum Delivery {
    /// This one; the message is named too if the client did.
    Handle(Option<MessageId>, String),
    /// The last one of this message.
    Last(MessageId),
}

/// What shall become of a delivery.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    Acknowledge,
    /// After the delay, or after one that grows with attempts.
    Nack(Option<Duration>, Option<String>),
    Reject(DeadReason, Option<String>),
    Extend(Duration),
    Return,
}

/// One delivery to settle.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) delivery: Delivery,
    pub(crate) wish: Wish,
}

/// A delivery that was found, and may be settled.
struct Found {
    mailbox: Name,
    /// Its handle, as the client has it.
    text: String,
    settlement: Settlement,
}

impl Service {
    /// Settles deliveries, as so many calls have asked for. One result each.
    ///
    /// # Cancel safety
    /// What was begun may have taken effect.
    pub(crate) async fn settle(
        &self,
        caller: &Caller,
        items: Vec<Item>,
        calls: usize,
    ) -> Answer<Vec<Answer<()>>> {
        self.store.abilities().check_batch("items", items.len())?;
        let started = Instant::now();
        // Receiving was counted; only what settles nothing counts again.
        if items.len() == 1 {
            let settled = self.settle_one(caller, items, started).await;
            caller.missed(usize::from(is_miss(&settled)));
            return Ok(vec![settled]);
        }
        let mut results: Vec<Option<Answer<()>>> = Vec::with_capacity(items.len());
        let mut by_mailbox: BTreeMap<Name, Vec<(usize, Found)>> = BTreeMap::new();
        for (at, item) in items.into_iter().enumerate() {
            match self.find(caller, item) {
                Ok(found) => {
                    by_mailbox.entry(found.mailbox.clone()).or_default().push((at, found));
                    results.push(None);
                }
                Err(failure) => results.push(Some(Err(failure))),
            }
        }
        let settles = by_mailbox.into_iter().map(|(mailbox, found)| async move {
            let batch = found.iter().map(|(_, it)| it.settlement.clone()).collect();
            let settled = self.store.settle(&mailbox, batch).await;
            (found, settled)
        });
        for (found, settled) in join_all(settles).await {
            let each: Vec<Result<()>> = match settled {
                Ok(each) => each,
                Err(error) => found.iter().map(|_| Err(error.clone())).collect(),
            };
            for ((at, found), result) in found.into_iter().zip(each) {
                self.note(&found, &result);
                results[at] = Some(result.map_err(Failure::from));
            }
        }
        self.metrics.ack.observe_each(calls, started.elapsed());
        let each =
            results.into_iter().map(|result| result.unwrap_or_else(|| Err(Failure::no_answer())));
        let results: Vec<Answer<()>> = each.collect();
        caller.missed(results.iter().filter(|result| is_miss(result)).count());
        Ok(results)
    }

    /// The same for a single one, which most are.
    async fn settle_one(&self, caller: &Caller, items: Vec<Item>, started: Instant) -> Answer<()> {
        let item = items.into_iter().next().ok_or_else(Failure::no_answer)?;
        let found = self.find(caller, item)?;
        let settled = self.store.settle(&found.mailbox, vec![found.settlement.clone()]).await;
        let settled = settled
            .and_then(|mut each| each.pop().unwrap_or_else(|| Err(Failure::no_answer().error)));
        self.note(&found, &settled);
        self.metrics.ack.observe(started.elapsed());
        Ok(settled?)
    }

    fn find(&self, caller: &Caller, item: Item) -> Answer<Found> {
        let (id, text, is_named) = match item.delivery {
            Delivery::Handle(id, text) => (id, text, true),
            Delivery::Last(id) => {
                let (_, handle) = self.handouts.last_of(&id).ok_or_else(not_handed_out)?;
                (None, handle.to_string(), false)
            }
        };
        let known = self.handouts.with(&text, |it| {
            let is_other = id.as_ref().is_some_and(|id| *id != it.id);
            if is_other { Err(of_another()) } else { Ok(Known::of(it)) }
        });
        let known = known.transpose()?;
        let handle = Handle::parse(&text).ok_or_else(expired)?;
        let allowed = self.check_settle(caller, &item.wish, &handle.mailbox, known.as_ref());
        allowed.map_err(|failure| {
            // Who did not name the mailbox does not learn which it is.
            let is_secret = !is_named && failure.reason == Some(Refused::Topic.as_str());
            if is_secret { Refused::Topic.into() } else { failure }
        })?;
        let attempt = known.map_or(1, |known| known.delivery_count);
        let Handle { mailbox, receipt_handle } = handle;
        let verdict = self.verdict(item.wish, attempt)?;
        Ok(Found { mailbox, text, settlement: Settlement { receipt_handle, verdict } })
    }

    fn check_settle(
        &self,
        caller: &Caller,
        wish: &Wish,
        mailbox: &Name,
        known: Option<&Known>,
    ) -> Answer<()> {
        let own = known.filter(|known| *known.token_id == *caller.verified.token_id);
        let op = match wish {
            Wish::Acknowledge | Wish::Extend(_) => Op::Acknowledge,
            Wish::Nack(..) | Wish::Reject(..) => Op::Nack,
            // Whoever may receive may say that nothing has come; of what others have received it
            // takes the right to give back.
            Wish::Return if own.is_some() => Op::Receive,
            Wish::Return => Op::Nack,
        };
        if matches!(wish, Wish::Extend(_) | Wish::Return) {
            return caller.may(op, Some(mailbox), 0);
        }
        caller.may_settle(op, mailbox, own.map(|known| known.received_at))
    }

    fn verdict(&self, wish: Wish, attempt: u32) -> Result<Verdict> {
        let boxed = |text: Option<String>| text.map(String::into_boxed_str);
        Ok(match wish {
            Wish::Acknowledge => Verdict::Acknowledge,
            Wish::Nack(Some(delay), error) => Verdict::Nack { delay, error: boxed(error) },
            Wish::Nack(None, error) => {
                Verdict::Nack { delay: self.backoff(attempt)?, error: boxed(error) }
            }
            Wish::Reject(reason, error) => Verdict::Reject { reason, error: boxed(error) },
            Wish::Extend(timeout) => Verdict::Extend { timeout },
            Wish::Return => Verdict::Return,
        })
    }

    /// Full jitter: somewhere between nothing and a bound that doubles with every attempt.
    fn backoff(&self, attempt: u32) -> Result<Duration> {
        let config = self.settings();
        let doubled = config.backoff_base.saturating_mul(1 << attempt.min(20));
        let most = doubled.min(config.backoff_max).as_nanos();
        let random = getrandom::u64()
            .map_err(|_| Error::new(ErrorKind::Internal, "the system gives no random numbers"))?;
        let nanos = (u128::from(random) * (most + 1)) >> 64;
        Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn note(&self, found: &Found, settled: &Result<()>) {
        match (settled, &found.settlement.verdict) {
            (Ok(()), Verdict::Extend { timeout }) => {
                self.handouts.extend(&found.text, Instant::now() + *timeout);
            }
            (Ok(()), _) => self.handouts.forget(&found.text),
            // It is over, whoever has settled it: perhaps a call that was cut off.
            (Err(error), _) if error.kind() == ErrorKind::ReceiptHandleExpired => {
                self.handouts.forget(&found.text);
            }
            (Err(_), _) => {}
        }
    }
}

/// What is known of a delivery that went out from here.
struct Known {
    token_id: std::sync::Arc<str>,
    received_at: i64,
    delivery_count: u32,
}

impl Known {
    fn of(it: &Handout) -> Self {
        let token_id = std::sync::Arc::clone(&it.token_id);
        let Handout { received_at, delivery_count, .. } = *it;
        Self { token_id, received_at, delivery_count }
    }
}

/// Whether a settlement failed because of who asked for it: not because the store is away.
fn is_miss(settled: &Answer<()>) -> bool {
    use ErrorKind::{Forbidden, InvalidParameter, ReceiptHandleExpired, Unauthorized};
    let kinds = [ReceiptHandleExpired, InvalidParameter, Forbidden, Unauthorized];
    settled.as_ref().is_err_and(|failure| kinds.contains(&failure.error.kind()))
}

fn of_another() -> Failure {
    let message = "receipt handle expired: it is of another message";
    Failure::new(ErrorKind::ReceiptHandleExpired, message)
}

fn expired() -> Failure {
    let message = "receipt handle expired: it is not of this service";
    Failure::new(ErrorKind::ReceiptHandleExpired, message)
}

fn not_handed_out() -> Failure {
    let message = "no delivery of this message went out from here: give its receipt handle";
    Failure::new(ErrorKind::ReceiptHandleExpired, message)
}

impl Delivery {
    /// The delivery that a request names.
    pub(crate) fn named(msg_id: Option<&str>, receipt_handle: Option<String>) -> Result<Self> {
        match (msg_id.map(MessageId::from_text), receipt_handle) {
            (id, Some(handle)) => Ok(Self::Handle(id, handle)),
            (Some(id), None) => Ok(Self::Last(id)),
            (None, None) => {
                let message = "name the delivery: receipt_handle, or msg_id";
                Err(Error::new(ErrorKind::InvalidParameter, message).with_field("receipt_handle"))
            }
        }
    }
}

//! Settling deliveries of a service.

use mailbox_wire::call::Request;
use mailbox_wire::json::{SettleBatchRequest, SettleItem, SettledBatch};

use super::Inner;
use super::calls::{Again, Calls};
use super::convert;
use super::door::Failed;
use super::gather::{Gathering, Together, doubted, miscounted};
use super::local::Local;
use crate::backend::Settlement;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ReceiptHandle;
use crate::name::Name;

/// Room that a settlement needs beside what is in it.
const ITEM: usize = 64;

/// Whether a delivery is of this mailbox.
pub(super) fn is_own(mailbox: &Name, settlement: &Settlement) -> bool {
    is_of(mailbox, &settlement.receipt_handle)
}

/// Whether a handle is of this mailbox: it says of which it is.
pub(super) fn is_of(mailbox: &Name, handle: &ReceiptHandle) -> bool {
    let handle = handle.to_string();
    handle.strip_prefix(mailbox.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// A handle of another mailbox is none of this one.
pub(super) fn not_own(mailbox: &Name) -> Error {
    let message = "receipt handle expired: it is not of this mailbox";
    Error::new(ErrorKind::ReceiptHandleExpired, message).with_mailbox(mailbox)
}

impl Inner {
    pub(super) async fn settle(
        &self,
        mailbox: &Name,
        batch: Vec<Settlement>,
        again: Again,
    ) -> Result<Vec<Result<()>>> {
        let own: Vec<bool> = batch.iter().map(|it| is_own(mailbox, it)).collect();
        let items = batch.into_iter().zip(&own).filter(|(_, is_own)| **is_own);
        let items: Vec<_> = items.map(|(it, _)| convert::settlement(it)).collect();
        let mut settled = Vec::new().into_iter();
        if !items.is_empty() {
            let count = items.len();
            let request = SettleItem::request(mailbox, items);
            let asked = SettleItem::ask(&self.calls, &request, again, count).await;
            settled = asked.map_err(|failed| failed.error)?.into_iter();
        }
        let mut next = |is_own: bool| if is_own { settled.next() } else { None };
        let result = |is_own: bool| next(is_own).unwrap_or_else(|| Err(not_own(mailbox)));
        Ok(own.into_iter().map(result).collect())
    }
}

impl Together for SettleItem {
    type Answer = ();

    fn gathering(local: &Local) -> &Gathering<Self> {
        &local.settlements
    }

    fn wire_len(&self) -> usize {
        let texts = [&self.receipt_handle, &self.reason].into_iter().flatten();
        texts.map(String::len).sum::<usize>() + ITEM
    }

    fn request(_: &Name, items: Vec<Self>) -> Request {
        Request::SettleBatch(SettleBatchRequest { items })
    }

    fn take_back(request: Request) -> Vec<Self> {
        match request {
            Request::SettleBatch(it) => it.items,
            _ => Vec::new(),
        }
    }

    async fn ask(
        calls: &Calls,
        request: &Request,
        again: Again,
        count: usize,
    ) -> Result<Vec<Result<()>>, Failed> {
        let edition = calls.edition();
        let mut results = ask_once(calls, request, again, count).await?;
        let refused: Vec<usize> = (0..count).filter(|at| is_refused(&results[*at])).collect();
        if refused.is_empty() || !calls.renew_since(edition).await {
            return Ok(results);
        }
        let Request::SettleBatch(whole) = request else { return Ok(results) };
        let items = refused.iter().map(|at| whole.items[*at].clone()).collect();
        let rest = Request::SettleBatch(SettleBatchRequest { items });
        match ask_once(calls, &rest, again, refused.len()).await {
            Ok(rest) => {
                refused.iter().zip(rest).for_each(|(at, it)| replace(&mut results[*at], it))
            }
            // Of the others it is known what became of them.
            Err(failed) => {
                refused.iter().for_each(|at| replace(&mut results[*at], Err(failed.error.clone())));
            }
        }
        Ok(results)
    }
}

/// Whether a settlement was refused, and nothing done, because of the capability. A service lets
/// one in that has expired, since what was received with it can be settled: so each is refused by
/// itself.
fn is_refused(result: &Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unauthorized)
}

/// The later result, which takes no doubt away: an attempt before the refusal may have done it.
fn replace(result: &mut Result<()>, later: Result<()>) {
    let is_in_doubt = result.as_ref().is_err_and(Error::is_in_doubt);
    *result = doubted([later].into_iter(), is_in_doubt).remove(0);
}

async fn ask_once(
    calls: &Calls,
    request: &Request,
    again: Again,
    count: usize,
) -> Result<Vec<Result<()>>, Failed> {
    let (answer, is_in_doubt): (SettledBatch, _) = calls.try_ask(request, again).await?;
    if answer.results.len() != count {
        return Err(miscounted());
    }
    Ok(doubted(answer.results.into_iter().map(convert::settled), is_in_doubt))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was done by the first of three attempts was told as lost.
    #[test]
    fn a_capability_that_was_renewed_takes_no_doubt_away() {
        let expired = || Error::new(ErrorKind::ReceiptHandleExpired, "gone");
        let refused = || Error::new(ErrorKind::Unauthorized, "expired");
        for (before, is_in_doubt) in [(refused(), false), (refused().with_doubt(), true)] {
            let mut result = Err(before);
            replace(&mut result, Err(expired()));
            let error = result.clone().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired);
            assert_eq!(error.is_in_doubt(), is_in_doubt);
            replace(&mut result, Ok(()));
            assert!(result.is_ok());
        }
    }
}

//! Receives messages and settles them in every way there is; keeps dead letters few.
//!
//! Visibility timeouts are short, so that an audit after a crash need not wait long for what was in
//! flight.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mailbox::{
    DeadReason, Delivery, Error, ErrorKind, Letter, Name, Peek, ReceiveOptions, Selection,
    Settlement, Verdict,
};

use super::{FAILURES, Shared};
use crate::event::Event;
use crate::letters::{Content, MAILBOXES, mailbox_of};
use crate::random::Random;

/// Most messages of one receive.
const BATCH: u64 = 8;

/// Receives and settles until too much has failed.
pub(super) async fn run(shared: Arc<Shared>, mut random: Random) {
    let mut failures = 0;
    while failures < FAILURES {
        let mailbox = mailbox_of(random.below(MAILBOXES));
        let mut options = ReceiveOptions::default();
        options.max_messages = 1 + random.below(BATCH) as u32;
        options.visibility_timeout = random.millis(40, 120);
        options.wait = Duration::from_millis(10);
        match shared.backend.receive(&mailbox, &options).await {
            Ok(deliveries) => failures += settle(&shared, &mailbox, deliveries, &mut random).await,
            Err(error) => {
                shared.tell.failed("receive", &error);
                failures += 1;
            }
        }
    }
}

/// Settles a batch, each message as chance has it; returns how many failures there were.
async fn settle(
    shared: &Shared,
    mailbox: &Name,
    deliveries: Vec<Delivery>,
    random: &mut Random,
) -> u32 {
    let mut tries = Vec::new();
    let mut settlements = Vec::new();
    let mut deleted = Vec::new();
    for delivery in deliveries {
        let Some(number) = recognise(shared, mailbox, &delivery.letter) else { continue };
        shared.tell.say(&[Event::Delivered(number, delivery.delivery_count)]);
        let Some(verdict) = verdict(random) else { continue };
        let is_deletion = matches!(verdict, Verdict::Acknowledge);
        if is_deletion {
            tries.push(Event::TryDelete(number));
        }
        deleted.push(is_deletion.then_some(number));
        settlements.push(Settlement { receipt_handle: delivery.receipt_handle, verdict });
    }
    if settlements.is_empty() {
        return 0;
    }
    shared.tell.say(&tries);
    match shared.backend.settle(mailbox, settlements).await {
        Ok(results) => {
            let mut failures = 0;
            for (number, result) in deleted.into_iter().zip(results) {
                failures += answered(shared, "settle", number, result);
            }
            failures
        }
        Err(error) => {
            shared.tell.failed("settle", &error);
            1
        }
    }
}

/// The number of a message, if it has one; tells when it is not what was sent.
fn recognise(shared: &Shared, mailbox: &Name, letter: &Letter) -> Option<u64> {
    match shared.letters.recognise(mailbox, letter) {
        Content::Intact(number) => Some(number),
        Content::Damaged(number) => {
            shared.tell.say(&[Event::Damaged(number)]);
            Some(number)
        }
        Content::Unreadable => {
            shared.tell.say(&[Event::Unreadable]);
            None
        }
    }
}

/// What becomes of a message; `None` is for those that are left to their deadline.
fn verdict(random: &mut Random) -> Option<Verdict> {
    let error = || Some(Box::from("not today"));
    match random.below(100) {
        0..70 => Some(Verdict::Acknowledge),
        70..80 => Some(Verdict::Nack { delay: random.millis(0, 20), error: error() }),
        80..85 => Some(Verdict::Extend { timeout: random.millis(40, 120) }),
        85..93 => Some(Verdict::Reject { reason: DeadReason::Rejected, error: error() }),
        _ => None,
    }
}

/// Tells the answer to a deletion (a settlement of another kind has no number).
fn answered(shared: &Shared, call: &str, number: Option<u64>, result: mailbox::Result<()>) -> u32 {
    match (result, number) {
        (Ok(()), Some(number)) => {
            shared.backlog.fetch_sub(1, Ordering::Relaxed);
            shared.tell.say(&[Event::Deleted(number)]);
            0
        }
        (Ok(()), None) => 0,
        // The deadline was faster, or a redrive: both are as they should be.
        (Err(error), number)
            if matches!(error.kind(), ErrorKind::ReceiptHandleExpired | ErrorKind::NotFound) =>
        {
            let refused: Vec<Event> = number.map(Event::DeleteRefused).into_iter().collect();
            shared.tell.say(&refused);
            0
        }
        (Err(error), _) => {
            shared.tell.failed(call, &error);
            1
        }
    }
}

/// Redrives some dead letters and deletes others until too much has failed.
pub(super) async fn keep_dead_letters(shared: Arc<Shared>, mut random: Random) {
    let mut failures = 0;
    while failures < FAILURES {
        tokio::time::sleep(random.millis(2, 8)).await;
        let mailbox = mailbox_of(random.below(MAILBOXES));
        let result = if random.percent(50) {
            redrive_some(&shared, &mailbox, 1 + random.below(4) as u32).await
        } else {
            delete_one_dead(&shared, &mailbox).await
        };
        match result {
            Ok(failed) => failures += failed,
            Err(error) => {
                shared.tell.failed("dead-letters", &error);
                failures += 1;
            }
        }
    }
}

/// By name, so that it is known whose count begins anew.
async fn redrive_some(shared: &Shared, mailbox: &Name, most: u32) -> mailbox::Result<u32> {
    let oldest = Peek::Dead { after: None, limit: most };
    let records = shared.backend.peek(mailbox, &oldest).await?;
    let numbers = records.iter().filter_map(|one| recognise(shared, mailbox, &one.letter));
    let tries: Vec<Event> = numbers.map(Event::TryRedrive).collect();
    shared.tell.say(&tries);
    let these = records.into_iter().map(|record| record.id).collect();
    let redriven = shared.backend.redrive(mailbox, &Selection::These(these)).await;
    Ok(answered(shared, "redrive", None, redriven.map(|_| ())))
}

async fn delete_one_dead(shared: &Shared, mailbox: &Name) -> mailbox::Result<u32> {
    let first = Peek::Dead { after: None, limit: 1 };
    let Some(record) = shared.backend.peek(mailbox, &first).await?.into_iter().next() else {
        return Ok(0);
    };
    let Some(number) = recognise(shared, mailbox, &record.letter) else { return Ok(1) };
    shared.tell.say(&[Event::TryDelete(number)]);
    let result = shared.backend.delete_dead(mailbox, &Selection::These(vec![record.id])).await;
    // None, where another process was faster: with a redrive, or a deletion of its own.
    let result = result.and_then(|count| match count {
        0 => Err(Error::new(ErrorKind::NotFound, "somebody was faster")),
        _ => Ok(()),
    });
    Ok(answered(shared, "delete-dead", Some(number), result))
}

//! Sends messages as fast as answers come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mailbox::{Error, ErrorKind, Sent};

use super::{FAILURES, Shared};
use crate::event::Event;
use crate::letters::{MAILBOXES, mailbox_of};
use crate::random::Random;

/// Most messages of one send.
const BATCH: u64 = 4;

/// Sends until too much has failed.
pub(super) async fn run(shared: Arc<Shared>, mut random: Random) {
    let mut failures = 0;
    while failures < FAILURES {
        if shared.is_crowded() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        failures += send(&shared, &mut random).await;
    }
}

/// One send; returns how many failures there were.
async fn send(shared: &Shared, random: &mut Random) -> u32 {
    let mailbox = random.below(MAILBOXES);
    let count = 1 + random.below(BATCH);
    let numbers: Vec<u64> = (0..count).map(|_| shared.number(mailbox)).collect();
    let tries: Vec<Event> = numbers.iter().map(|number| Event::TrySend(*number)).collect();
    let batch = numbers.iter().map(|number| shared.letters.outgoing(*number)).collect();
    shared.tell.say(&tries);
    match shared.backend.send(&mailbox_of(mailbox), batch).await {
        Ok(results) => {
            let mut failures = 0;
            for (number, result) in numbers.into_iter().zip(results) {
                failures += answered(shared, number, result);
            }
            failures
        }
        Err(error) => {
            shared.tell.failed("send", &error);
            1
        }
    }
}

fn answered(shared: &Shared, number: u64, result: Result<Sent, Error>) -> u32 {
    match result {
        Ok(sent) if sent.duplicate => {
            let text = format!("{number} is new, and was taken for a duplicate");
            shared.tell.failed("send", &Error::new(ErrorKind::Duplicate, text));
            1
        }
        Ok(_) => {
            shared.backlog.fetch_add(1, Ordering::Relaxed);
            shared.tell.say(&[Event::Sent(number)]);
            0
        }
        Err(error) if error.kind() == ErrorKind::Saturated => {
            shared.tell.say(&[Event::SendRefused(number)]);
            1
        }
        Err(error) => {
            shared.tell.failed("send", &error);
            1
        }
    }
}

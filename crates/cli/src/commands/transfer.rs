//! `mailbox move`: messages go from one mailbox to another. Invariant: a message leaves its mailbox
//! only after the other one keeps it; what is interrupted in between is recognised the next time.

use mailbox::{
    Delivery, Error, ErrorKind, Letter, MessageId, Outgoing, Peek, ReceiveOptions, Record, Result,
    Selection, Sent, Settlement, Timestamp, Verdict,
};
use serde_json::json;

use super::dead::Pages;
use super::receive::give_back;
use crate::args::Move;
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making, Place, seen_from_afar};
use crate::progress::Progress;
use crate::signals::Signals;

/// Most messages that are on their way at a time.
const BATCH: u32 = 64;

pub(super) async fn run(args: &Move) -> Result<Outcome> {
    let (from, to) = (place::read(&args.from)?, place::read(&args.to)?);
    if from == to {
        return Err(same(&args.from));
    }
    if to.scheme() == "memory" {
        let message = "memory: ends with this command; nothing would be left";
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("to"));
    }
    let from = Place::open(from, Making::No).await?;
    let to = match Place::open(to, Making::Yes).await {
        Ok(to) => to,
        Err(error) => {
            // What went wrong first is what is said.
            let _ = from.backend.close().await;
            return Err(error);
        }
    };
    let moved = between(args, &from, &to).await;
    let closed = from.backend.close().await.and(to.backend.close().await);
    let outcome = moved?;
    closed.map(|()| outcome)
}

fn same(address: &str) -> Error {
    let message = format!("{}: from and to are the same mailbox", output::tamed(address, 200));
    Error::new(ErrorKind::InvalidParameter, message).with_field("to")
}

async fn between(args: &Move, from: &Place, to: &Place) -> Result<Outcome> {
    if from.backend.address(&from.name) == to.backend.address(&to.name) {
        return Err(same(&from.known_as()));
    }
    if !to.backend.abilities().idempotency {
        output::say("messages are not recognised there: one that is interrupted may come twice");
    }
    let signals = Signals::new()?;
    let stats = from.backend.stats(&from.name).await?;
    let there = if args.dead { stats.dead } else { stats.ready };
    let left = args.max.unwrap_or(u64::MAX);
    let progress = Progress::new("moving", Some(there.min(left)));
    // Dead letters are read from the first to the last: that ends by itself.
    let most = if args.dead { u64::MAX } else { stats.live() };
    let told_apart = false;
    let mut moving = Moving { args, from, to, left, most, moved: 0, told_apart, progress, signals };
    let done = if args.dead { moving.dead_letters().await } else { moving.messages().await };
    moving.progress.finish();
    let moved = moving.moved;
    if args.json {
        output::print_json_line(&json!({ "moved": moved }))?;
    } else {
        output::print(&format!("{moved}\n"))?;
    }
    done
}

/// Says what to do about leases that end too early.
fn too_short(error: Error) -> Error {
    if error.kind() != ErrorKind::ReceiptHandleExpired {
        return error;
    }
    let message = "messages are there, but came too late to be acknowledged: a longer --visibility \
                   helps, and the next move recognises them";
    Error::new(ErrorKind::ReceiptHandleExpired, message).with_source(error)
}

struct Moving<'a> {
    args: &'a Move,
    from: &'a Place,
    to: &'a Place,
    left: u64,
    /// How many there were when it began: all that are moved if nothing else is sure to end it.
    most: u64,
    moved: u64,
    /// It is known whether both are the same mailbox, as far as that can be known.
    told_apart: bool,
    progress: Progress,
    signals: Signals,
}

impl Moving<'_> {
    /// How many to take next.
    fn batch(&self) -> u32 {
        if !self.told_apart {
            return 1;
        }
        let abilities = (self.from.backend.abilities(), self.to.backend.abilities());
        let most = BATCH.min(abilities.0.max_messages).min(abilities.1.max_messages).max(1);
        u32::try_from(self.left).unwrap_or(u32::MAX).min(most)
    }

    async fn messages(&mut self) -> Result<Outcome> {
        while self.left > 0 {
            let options = ReceiveOptions::new()
                .with_max_messages(self.batch())
                .with_visibility_timeout(self.args.visibility);
            let received = tokio::select! {
                biased;
                () = self.signals.next() => return Ok(Outcome::Interrupted),
                received = self.from.backend.receive(&self.from.name, &options) => received?,
            };
            if received.is_empty() {
                break;
            }
            self.pass_on(received).await?;
        }
        Ok(Outcome::Done)
    }

    /// Sends what was received, and acknowledges what was sent.
    async fn pass_on(&mut self, received: Vec<Delivery>) -> Result<()> {
        let batch: Vec<Outgoing> =
            received.iter().map(|it| self.copy(&it.id, &it.letter)).collect();
        let sent = match self.to.backend.send(&self.to.name, batch).await {
            Ok(sent) => sent,
            Err(error) => {
                give_back(self.from, received.into_iter()).await;
                return Err(error);
            }
        };
        let is_same = self.is_same(&received, &sent).await;
        let (sent, refused, error) = sorted(received, sent);
        let settlement = |delivery: Delivery| Settlement {
            receipt_handle: delivery.receipt_handle,
            verdict: Verdict::Acknowledge,
        };
        let batch = sent.into_iter().map(settlement).collect();
        let settled = self.from.backend.settle(&self.from.name, batch).await?;
        let (acknowledged, failed): (Vec<_>, Vec<_>) = settled.into_iter().partition(Result::is_ok);
        if is_same {
            // What was taken out is in line again, as another message.
            return failed.into_iter().collect::<Result<()>>().and(Err(same(&self.to.known_as())));
        }
        acknowledged.iter().for_each(|_| self.count());
        let is_late = |error: &Error| {
            error.kind() == ErrorKind::ReceiptHandleExpired && !acknowledged.is_empty()
        };
        for settled in failed {
            // One whose lease has ended comes again, and is recognised. If that happens to all of
            // them, there is no end to it.
            settled
                .or_else(|error| if is_late(&error) { Ok(()) } else { Err(too_short(error)) })?;
        }
        if !refused.is_empty() {
            give_back(self.from, refused.into_iter()).await;
        }
        error.map_or(Ok(()), Err)
    }

    /// Whether what was sent there is now where it was taken from: one mailbox can have several
    /// addresses, and a move between them would never end. Asked of the first message alone.
    async fn is_same(&mut self, received: &[Delivery], sent: &[Result<Sent>]) -> bool {
        let (Some(original), Some(Ok(sent))) = (received.first(), sent.first()) else {
            return false;
        };
        let copy = self.copy(&original.id, &original.letter);
        self.is_back(&original.id, &copy, sent).await
    }

    /// Whether this copy is in the mailbox that its original is from.
    async fn is_back(&mut self, original: &MessageId, copy: &Outgoing, sent: &Sent) -> bool {
        if self.told_apart {
            return false;
        }
        let these = Peek::These(vec![sent.id.clone()]);
        let found = match self.from.backend.peek(&self.from.name, &these).await {
            Ok(found) => found,
            Err(error) => {
                output::say(&format!(
                    "cannot tell whether both are the same mailbox ({error}): no more are moved \
                     than there were"
                ));
                self.left = self.left.min(self.most);
                self.told_apart = true;
                return false;
            }
        };
        // Ids alone do not do: those of another mailbox may be the same.
        let is_copy = |letter: &Letter| match &copy.idempotency_key {
            Some(_) => letter.idempotency_key == copy.idempotency_key,
            None => (&letter.payload, &letter.attributes) == (&copy.payload, &copy.attributes),
        };
        let is_back =
            found.iter().any(|it| it.id == sent.id && it.id != *original && is_copy(&it.letter));
        // One that an earlier move has sent may have been received since: the next one tells.
        self.told_apart = !sent.duplicate;
        is_back
    }

    /// Dead letters are not received: they are read, sent, and then deleted.
    async fn dead_letters(&mut self) -> Result<Outcome> {
        let mut pages = Pages::new(self.from);
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(Outcome::Done);
            }
            for record in page {
                if self.left == 0 {
                    return Ok(Outcome::Done);
                }
                let is_stopped = tokio::select! {
                    biased;
                    () = self.signals.next() => true,
                    () = std::future::ready(()) => false,
                };
                if is_stopped {
                    return Ok(Outcome::Interrupted);
                }
                self.dead_letter(record).await?;
            }
        }
    }

    async fn dead_letter(&mut self, record: Record) -> Result<()> {
        let copy = self.copy(&record.id, &record.letter);
        let mut sent = self.to.backend.send(&self.to.name, vec![copy.clone()]).await?;
        let sent = sent.pop().unwrap_or_else(|| Err(super::send::unanswered()))?;
        let is_same = self.is_back(&record.id, &copy, &sent).await;
        let this = Selection::These(vec![record.id]);
        self.from.backend.delete_dead(&self.from.name, &this).await?;
        if is_same {
            return Err(same(&self.to.known_as()));
        }
        self.count();
        Ok(())
    }

    fn count(&mut self) {
        self.moved += 1;
        self.left = self.left.saturating_sub(1);
        self.progress.advance(1);
    }

    /// The message as it is sent to the other mailbox.
    fn copy(&self, id: &MessageId, letter: &Letter) -> Outgoing {
        let mut copy = Outgoing::new(letter.payload.clone());
        copy.attributes.clone_from(&letter.attributes);
        copy.group.clone_from(&letter.group);
        let seen = |to| seen_from_afar(&*self.from.backend, to);
        copy.reply_to = letter.reply_to.as_deref().map(seen);
        if self.to.backend.abilities().idempotency {
            let from = self.from.backend.address(&self.from.name);
            copy.idempotency_key = Some(key(&from, id, letter.enqueued_at));
        }
        copy
    }
}

/// Those that are kept there, those that are not, and why.
fn sorted(
    received: Vec<Delivery>,
    sent: Vec<Result<Sent>>,
) -> (Vec<Delivery>, Vec<Delivery>, Option<Error>) {
    let mut sent = sent.into_iter();
    let (mut kept, mut refused, mut first) = (Vec::new(), Vec::new(), None);
    for delivery in received {
        match sent.next().unwrap_or_else(|| Err(super::send::unanswered())) {
            Ok(_) => kept.push(delivery),
            Err(error) => {
                refused.push(delivery);
                first = first.or(Some(error));
            }
        }
    }
    (kept, refused, first)
}

/// What a message is recognised by when it comes a second time. Ids alone do not do: those of
/// another mailbox may be the same.
fn key(from: &str, id: &MessageId, sent: Timestamp) -> String {
    let mut hash = blake3::Hasher::new();
    for part in [from, &id.to_string(), &sent.to_string()] {
        hash.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    format!("move-{}", hash.finalize().to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_short_and_differs_with_each_part() {
        let (one, two) = (Timestamp::from_unix_millis(1), Timestamp::from_unix_millis(2));
        let id = MessageId::from_text;
        let first = key("dir:///a/x", &id("1"), one);
        assert_eq!(first, key("dir:///a/x", &id("1"), one));
        assert!(first.len() <= mailbox::limits::IDEMPOTENCY_KEY_LEN);
        for other in [
            key("dir:///a/x", &id("2"), one),
            key("dir:///a/y", &id("1"), one),
            key("dir:///a/x", &id("1"), two),
            key("dir:///a/x1", &id(""), one),
        ] {
            assert_ne!(first, other);
        }
    }
}

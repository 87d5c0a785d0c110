//! Opens a home after a fault and looks at everything in it. Invariant: what the audit reports
//! follows from the ledger and what was found, nothing else; what it deletes to keep the home
//! small it notes in the ledger like any other deletion.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::{
    Backend, Delivery, MessageId, Name, Peek, ReceiptHandle, ReceiveOptions, Result, Selection,
    Settlement, Verdict, limits,
};

use crate::event::Event;
use crate::ledger::Ledger;
use crate::letters::{Content, Letters, mailbox_of, mailboxes};
use crate::subject::Setup;
use crate::violation::Violation;
use crate::worker::PATIENCE;

/// How long messages in flight may take to come back. Workers take them for 0.12 s at most.
const COMES_BACK: Duration = Duration::from_secs(10);
/// Most messages of one call.
const BATCH: u32 = 256;
/// Keyed sends without answer that are sent again.
const RETRIES: usize = 64;
/// Keyed sends with an answer that are sent again.
const REPEATS: usize = 8;

/// What to look at, and how.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    /// Where the home is.
    pub(crate) dir: PathBuf,
    /// How it is set up.
    pub(crate) setup: Setup,
    /// How messages look.
    pub(crate) letters: Letters,
    /// Messages from this number on may be sent again, to see whether keys are remembered.
    pub(crate) repeat_from: u64,
    /// How many messages of each mailbox stay, live and dead.
    pub(crate) keep: usize,
}

/// A message that was found alive.
#[derive(Debug)]
struct Held {
    content: Content,
    handle: ReceiptHandle,
}

/// A dead letter.
#[derive(Debug)]
struct Dead {
    content: Content,
    id: MessageId,
}

impl Audit {
    /// Opens, looks, deletes most of it and closes. Whatever is wrong is reported to the ledger; a
    /// panic too.
    pub(crate) async fn run(self, mut ledger: Ledger) -> Ledger {
        let counted = ledger.counts();
        let auditing = tokio::spawn(async move {
            self.open_and_look(&mut ledger).await;
            ledger
        });
        auditing.await.unwrap_or_else(|panic| {
            let mut ledger = Ledger::default();
            ledger.set_counts(counted);
            ledger.report(Violation::Failure(format!("in the audit: {panic}")));
            ledger
        })
    }

    async fn open_and_look(&self, ledger: &mut Ledger) {
        let opening = tokio::time::timeout(PATIENCE, self.setup.open(&self.dir));
        let backend = match opening.await {
            Ok(Ok(backend)) => backend,
            Ok(Err(error)) => return ledger.report(Violation::RefusedOpen(format!("{error:?}"))),
            Err(_) => return ledger.report(Violation::Stuck("opening it".to_owned())),
        };
        ledger.reopened();
        let looked = tokio::time::timeout(PATIENCE, self.look(&backend, ledger)).await;
        match looked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => ledger.report(Violation::Failure(format!("in the audit: {error:?}"))),
            Err(_) => ledger.report(Violation::Stuck("the audit".to_owned())),
        }
        match tokio::time::timeout(PATIENCE, backend.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => ledger.report(Violation::Failure(format!("in close: {error:?}"))),
            Err(_) => ledger.report(Violation::Stuck("closing it".to_owned())),
        }
    }

    async fn look(&self, backend: &Arc<dyn Backend>, ledger: &mut Ledger) -> Result<()> {
        self.send_again(backend, ledger).await?;
        let mut found = Vec::new();
        let mut deleted = Vec::new();
        let mut held = Vec::new();
        let mut dead = Vec::new();
        for mailbox in mailboxes() {
            let live = self.take_all(backend, &mailbox, &mut found, &mut deleted, ledger).await?;
            let dead_here = self.page_dead(backend, &mailbox, ledger).await?;
            found.extend(dead_here.iter().map(|letter| letter.content));
            let set_aside = backend.stats(&mailbox).await?.set_aside;
            if set_aside > 0 {
                ledger.report(Violation::SetAside(set_aside));
            }
            held.push((mailbox.clone(), live));
            dead.push((mailbox, dead_here));
        }
        ledger.audit(&found);
        note_deleted(ledger, deleted);
        for (mailbox, live) in held {
            self.trim_live(backend, &mailbox, live, ledger).await?;
        }
        for (mailbox, letters) in dead {
            self.trim_dead(backend, &mailbox, letters, ledger).await?;
        }
        Ok(())
    }

    /// A send whose answer was lost is what keys are for: it is sent again, and must then be there
    /// like any other (I1). One that was answered must be known.
    async fn send_again(&self, backend: &Arc<dyn Backend>, ledger: &mut Ledger) -> Result<()> {
        let has_key = |number: &u64| self.letters.has_key(*number);
        let in_doubt: Vec<u64> = ledger.in_doubt().filter(has_key).take(RETRIES).collect();
        let known = ledger.known_since(self.repeat_from);
        let known: Vec<u64> = known.filter(has_key).take(REPEATS).collect();
        for number in in_doubt {
            ledger.note(&Event::TrySend(number), true);
            self.send_one(backend, number).await?;
            ledger.note(&Event::Sent(number), true);
        }
        for number in known {
            if !self.send_one(backend, number).await? {
                ledger.report(Violation::KeyForgotten(number));
            }
        }
        Ok(())
    }

    /// Sends one message; returns whether it was taken for a duplicate.
    async fn send_one(&self, backend: &Arc<dyn Backend>, number: u64) -> Result<bool> {
        let batch = vec![self.letters.outgoing(number)];
        let results = backend.send(&mailbox_of(number), batch).await?;
        let sent = results.into_iter().next().expect("one result per message")?;
        Ok(sent.duplicate)
    }

    /// Receives until every live message is held here, waiting for those in flight. Those of
    /// ordering groups are acknowledged at once, because each hides the next one.
    async fn take_all(
        &self,
        backend: &Arc<dyn Backend>,
        mailbox: &Name,
        found: &mut Vec<Content>,
        deleted: &mut Vec<Content>,
        ledger: &mut Ledger,
    ) -> Result<Vec<Held>> {
        let mut options = ReceiveOptions::default();
        options.max_messages = BATCH;
        options.visibility_timeout = limits::VISIBILITY_TIMEOUT;
        options.wait = Duration::from_millis(100);
        let deadline = Instant::now() + COMES_BACK;
        let mut held = Vec::new();
        loop {
            let live = backend.stats(mailbox).await?.live();
            if live <= held.len() as u64 {
                return Ok(held);
            }
            if Instant::now() > deadline {
                let hidden = live - held.len() as u64;
                let what = format!("{hidden} of {live} messages of {mailbox} do not come back");
                ledger.report(Violation::Stuck(what));
                return Ok(held);
            }
            let mut settlements = Vec::new();
            for delivery in backend.receive(mailbox, &options).await? {
                let Delivery { letter, receipt_handle: handle, delivery_count, .. } = delivery;
                let content = self.letters.recognise(mailbox, &letter);
                found.push(content);
                if let Content::Intact(number) = content {
                    // This delivery is one more than it had.
                    ledger.recount(number, delivery_count.saturating_sub(1));
                    ledger.note(&Event::Delivered(number, delivery_count), true);
                }
                if letter.group.is_none() {
                    held.push(Held { content, handle });
                    continue;
                }
                deleted.push(content);
                let verdict = Verdict::Acknowledge;
                settlements.push(Settlement { receipt_handle: handle, verdict });
            }
            settle(backend, mailbox, settlements).await?;
        }
    }

    async fn page_dead(
        &self,
        backend: &Arc<dyn Backend>,
        mailbox: &Name,
        ledger: &mut Ledger,
    ) -> Result<Vec<Dead>> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = backend.peek(mailbox, &Peek::Dead { after, limit: BATCH }).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.death.map(|death| death.order);
            for record in page {
                let content = self.letters.recognise(mailbox, &record.letter);
                if let Content::Intact(number) = content {
                    ledger.recount(number, record.delivery_count);
                }
                all.push(Dead { content, id: record.id });
            }
        }
    }

    async fn trim_live(
        &self,
        backend: &Arc<dyn Backend>,
        mailbox: &Name,
        mut held: Vec<Held>,
        ledger: &mut Ledger,
    ) -> Result<()> {
        let kept = held.split_off(held.len().saturating_sub(self.keep));
        while !held.is_empty() {
            let part = held.split_off(held.len().saturating_sub(BATCH as usize));
            let contents: Vec<Content> = part.iter().map(|message| message.content).collect();
            let settled = part.into_iter().map(|message| Settlement {
                receipt_handle: message.handle,
                verdict: Verdict::Acknowledge,
            });
            settle(backend, mailbox, settled.collect()).await?;
            note_deleted(ledger, contents);
        }
        let given_back = kept.into_iter().map(|message| Settlement {
            receipt_handle: message.handle,
            verdict: Verdict::Nack { delay: Duration::ZERO, error: None },
        });
        settle(backend, mailbox, given_back.collect()).await
    }

    async fn trim_dead(
        &self,
        backend: &Arc<dyn Backend>,
        mailbox: &Name,
        mut dead: Vec<Dead>,
        ledger: &mut Ledger,
    ) -> Result<()> {
        dead.truncate(dead.len().saturating_sub(self.keep));
        if dead.is_empty() {
            return Ok(());
        }
        let contents = dead.iter().map(|letter| letter.content).collect();
        let these = dead.into_iter().map(|letter| letter.id).collect();
        backend.delete_dead(mailbox, &Selection::These(these)).await?;
        note_deleted(ledger, contents);
        Ok(())
    }
}

async fn settle(
    backend: &Arc<dyn Backend>,
    mailbox: &Name,
    settlements: Vec<Settlement>,
) -> Result<()> {
    if settlements.is_empty() {
        return Ok(());
    }
    for result in backend.settle(mailbox, settlements).await? {
        result?;
    }
    Ok(())
}

fn note_deleted(ledger: &mut Ledger, contents: Vec<Content>) {
    for content in contents {
        if let Content::Intact(number) | Content::Damaged(number) = content {
            ledger.note(&Event::TryDelete(number), true);
            ledger.note(&Event::Deleted(number), true);
        }
    }
}

//! The disk is filled until sends are refused, then emptied: settling goes on working while it is
//! full, sending works again without reopening, nothing is lost, and as much fits in as at first.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::{
    Backend, DeadReason, Error, ErrorKind, MessageId, Name, Peek, ReceiveOptions, Selection,
    Settlement, Verdict, limits,
};

use crate::event::Event;
use crate::ledger::Ledger;
use crate::letters::{Content, Letters, MAILBOXES, mailbox_of, mailboxes};
use crate::mount::Volume;
use crate::random::Random;
use crate::report::{NotRun, Outcome};
use crate::scene::Scene;
use crate::subject::Setup;
use crate::violation::Violation;

/// Messages of one send.
const BATCH: u64 = 8;
/// The disk is full when this many sends in a row were refused.
const REFUSALS: u32 = 3;
/// Most sends of one filling: far more than fit.
const SENDS: u64 = 100_000;
/// How long filling, emptying or working again may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs it on `volume`, which has this many MiB.
pub(crate) async fn run(
    scene: &Scene,
    setup: Setup,
    volume: Volume,
    size_mib: u64,
    cycles: u64,
) -> Result<Outcome, NotRun> {
    let mut outcome = scene.outcome();
    let mut filling = Filling {
        dir: volume.point().join(setup.subject().word()),
        setup,
        letters: Letters { seed: scene.seed, plain: true, groups: false },
        ledger: Ledger::default(),
        random: scene.random("full"),
        next: 0,
        bytes: 0,
    };
    let mut fitted_at_first = None;
    let mut backend = filling.open().await;
    while outcome.goes_on(cycles) {
        let Ok(open) = backend else { break };
        backend = filling.cycle(open, outcome.faults).await;
        outcome.faults += 1;
        if let Err(violation) = &backend {
            filling.ledger.report(violation.clone());
        }
        // An eighth of the disk at least, where each message is a file and each file has a page;
        // and later no less than half of what was in it before.
        let fitted = std::mem::take(&mut filling.bytes);
        let least = fitted_at_first.map_or(size_mib << 17, |bytes: u64| bytes / 2);
        fitted_at_first.get_or_insert(fitted);
        if fitted < least {
            let what = format!("only {fitted} bytes fit in, expected are {least} at least");
            filling.ledger.report(Violation::Failure(what));
        }
        outcome.take(&mut filling.ledger);
    }
    match backend {
        Ok(backend) => close(&backend).await.unwrap_or_else(|violation| outcome.add(violation)),
        Err(violation) if outcome.faults == 0 => outcome.add(violation),
        Err(_) => {}
    }
    drop(volume);
    Ok(outcome.end())
}

/// A home on a small disk.
#[derive(Debug)]
struct Filling {
    dir: PathBuf,
    setup: Setup,
    letters: Letters,
    ledger: Ledger,
    random: Random,
    next: u64,
    /// Payload bytes accepted since the disk was last empty.
    bytes: u64,
}

impl Filling {
    async fn open(&self) -> Result<Arc<dyn Backend>, Violation> {
        match tokio::time::timeout(PATIENCE, self.setup.open(&self.dir)).await {
            Ok(Ok(backend)) => Ok(backend),
            Ok(Err(error)) => Err(Violation::RefusedOpen(format!("{error:?}"))),
            Err(_) => Err(Violation::Stuck("opening it".to_owned())),
        }
    }

    /// Fills and empties the disk. Every third time the home is opened anew while the disk is
    /// full, every third time when it is empty.
    async fn cycle(
        &mut self,
        mut backend: Arc<dyn Backend>,
        cycle: u64,
    ) -> Result<Arc<dyn Backend>, Violation> {
        in_time("filling", self.fill(&backend)).await?;
        if cycle % 3 == 1 {
            close(&backend).await?;
            backend = self.open().await?;
        }
        in_time("emptying", self.empty(&backend)).await?;
        in_time("working again", self.work_again(&backend)).await?;
        if cycle % 3 == 2 {
            close(&backend).await?;
            backend = self.open().await?;
        }
        Ok(backend)
    }

    /// Sends until nothing is accepted any more.
    async fn fill(&mut self, backend: &Arc<dyn Backend>) -> Result<(), Violation> {
        let mut refused = 0;
        for _ in 0..SENDS {
            refused = if self.send(backend).await? { 0 } else { refused + 1 };
            if refused == REFUSALS {
                return Ok(());
            }
        }
        Err(Violation::Failure(format!("{SENDS} sends do not fill the disk")))
    }

    /// One send; returns whether any message of it was accepted.
    async fn send(&mut self, backend: &Arc<dyn Backend>) -> Result<bool, Violation> {
        let mailbox = self.next % MAILBOXES;
        let numbers: Vec<u64> =
            (0..BATCH).map(|place| (self.next + place) * MAILBOXES + mailbox).collect();
        self.next += BATCH;
        let batch = numbers.iter().map(|number| self.letters.outgoing(*number)).collect();
        let results = match backend.send(&mailbox_of(mailbox), batch).await {
            Ok(results) => results,
            Err(error) if is_full(&error) => return Ok(false),
            Err(error) => return Err(Violation::Failure(format!("send: {error:?}"))),
        };
        let mut accepted = false;
        for (number, result) in numbers.into_iter().zip(results) {
            self.ledger.note(&Event::TrySend(number), true);
            match result {
                Ok(_) => {
                    accepted = true;
                    self.bytes += self.letters.outgoing(number).payload.len() as u64;
                    self.ledger.note(&Event::Sent(number), true);
                }
                Err(error) if is_full(&error) => {
                    self.ledger.note(&Event::SendRefused(number), true);
                }
                Err(error) => return Err(Violation::Failure(format!("send: {error:?}"))),
            }
        }
        Ok(accepted)
    }

    /// Receives and deletes everything, some of it by way of nacks and dead letters.
    async fn empty(&mut self, backend: &Arc<dyn Backend>) -> Result<(), Violation> {
        let mut seen: HashMap<u64, MessageId> = HashMap::new();
        let mut found = Vec::new();
        for mailbox in mailboxes() {
            while backend.stats(&mailbox).await.map_err(failed)?.live() > 0 {
                self.empty_some(backend, &mailbox, &mut seen, &mut found).await?;
            }
            self.delete_dead(backend, &mailbox).await?;
        }
        self.ledger.audit(&found);
        for number in seen.into_keys() {
            self.ledger.note(&Event::TryDelete(number), true);
            self.ledger.note(&Event::Deleted(number), true);
        }
        Ok(())
    }

    async fn empty_some(
        &mut self,
        backend: &Arc<dyn Backend>,
        mailbox: &Name,
        seen: &mut HashMap<u64, MessageId>,
        found: &mut Vec<Content>,
    ) -> Result<(), Violation> {
        let mut options = ReceiveOptions::default();
        options.max_messages = 64;
        options.visibility_timeout = limits::VISIBILITY_TIMEOUT;
        options.wait = Duration::from_millis(50);
        let (mut settlements, mut others) = (Vec::new(), Vec::new());
        for delivery in backend.receive(mailbox, &options).await.map_err(failed)? {
            let content = self.letters.recognise(mailbox, &delivery.letter);
            match content {
                // A message that was nacked comes again, as itself.
                Content::Intact(number) => {
                    let first = seen.insert(number, delivery.id.clone());
                    if first.as_ref() != Some(&delivery.id) {
                        found.push(content);
                    }
                }
                Content::Damaged(_) | Content::Unreadable => found.push(content),
            }
            let verdict = match self.random.below(100) {
                0..86 => Verdict::Acknowledge,
                86..93 => Verdict::Nack { delay: Duration::ZERO, error: self.error() },
                _ => Verdict::Reject { reason: DeadReason::Rejected, error: self.error() },
            };
            let is_deletion = verdict == Verdict::Acknowledge;
            let settlement = Settlement { receipt_handle: delivery.receipt_handle, verdict };
            if is_deletion { settlements.push(settlement) } else { others.push(settlement) }
        }
        // Acknowledging makes space; what is kept may need some.
        for batch in [settlements, others] {
            for result in backend.settle(mailbox, batch).await.map_err(failed)? {
                result.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Why a message is given back, for some.
    fn error(&mut self) -> Option<Box<str>> {
        self.random.percent(50).then(|| "no room for it".into())
    }

    /// Deletes the dead letters; they were seen when they were received.
    async fn delete_dead(
        &mut self,
        backend: &Arc<dyn Backend>,
        mailbox: &Name,
    ) -> Result<(), Violation> {
        backend.delete_dead(mailbox, &Selection::All).await.map_err(failed)?;
        let first = Peek::Dead { after: None, limit: 1 };
        let left = backend.peek(mailbox, &first).await.map_err(failed)?;
        if left.is_empty() {
            return Ok(());
        }
        Err(Violation::Failure("dead letters are left after deleting all".to_owned()))
    }

    /// Sends until one send is accepted: space may be given back a moment after it was freed.
    async fn work_again(&mut self, backend: &Arc<dyn Backend>) -> Result<(), Violation> {
        while !self.send(backend).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// The refusal that a full disk is to give.
fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::Saturated && error.field() == Some("storage")
}

fn failed(error: Error) -> Violation {
    Violation::Failure(format!("while the disk is full: {error:?}"))
}

async fn in_time<F>(what: &str, step: F) -> Result<(), Violation>
where
    F: Future<Output = Result<(), Violation>>,
{
    let started = Instant::now();
    match tokio::time::timeout(PATIENCE, step).await {
        Ok(result) => result,
        Err(_) => Err(Violation::Stuck(format!("{what} after {:?}", started.elapsed()))),
    }
}

async fn close(backend: &Arc<dyn Backend>) -> Result<(), Violation> {
    let closing = async { backend.close().await.map_err(failed) };
    in_time("closing", closing).await
}

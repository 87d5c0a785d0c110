//! Commands on the specification itself. What a home adds to `core` is here in the fewest words:
//! a receive takes until it has enough, and retention is applied whenever somebody looks.

use std::collections::BTreeSet;
use std::time::Duration;

use mailbox::{Error, Name, Policy};
use mailbox_core::{
    Draft, Event, Fingerprint, Id, Key, Queue, Receipt, Refusal, Sending, Time, View,
};

use super::command::{Command, Which};
use super::sight::{Gave, Seen, Sight};

pub(super) struct Oracle {
    queue: Queue<()>,
    unit: Duration,
    now: Time,
    sent: usize,
    /// In order of delivery.
    receipts: Vec<Receipt>,
}

impl Oracle {
    pub(super) fn new(unit: Duration) -> Self {
        let queue = Queue::new(Policy::default(), 0);
        Self { queue, unit, now: Time::ZERO, sent: 0, receipts: Vec::new() }
    }

    pub(super) fn run(&mut self, command: &Command) -> Gave {
        let unit = self.unit;
        match command {
            Command::Send { delay, group, key } => self.send(unit * *delay, *group, *key),
            Command::Receive { most, visibility } => self.receive(*most, unit * *visibility),
            Command::Settle { back, choice } => {
                let place = self.receipts.len().checked_sub(back + 1);
                let Some(receipt) = place.and_then(|place| self.receipts.get(place)) else {
                    return Gave::Nothing;
                };
                match self.queue.decide_settle(self.now, *receipt, choice.verdict(unit)) {
                    Ok(event) => self.apply(event),
                    Err(refusal) => refused(refusal),
                }
            }
            Command::Redrive(which) => {
                self.each_dead(which, |queue, now, key| queue.decide_redrive(now, key))
            }
            Command::Delete(which) => {
                self.each_dead(which, |queue, now, key| queue.decide_discard(now, key))
            }
            Command::Purge => {
                let count = self.queue.count();
                self.apply(self.queue.decide_purge(self.now));
                Gave::Count(count)
            }
            Command::Configure(rules) => {
                self.apply(self.queue.decide_configure(self.now, rules.policy(unit)))
            }
            Command::Pass(units) => {
                self.now = self.now.after(unit * *units);
                Gave::Nothing
            }
        }
    }

    fn apply(&mut self, event: Event<()>) -> Gave {
        let _ = self.queue.apply(event);
        Gave::Nothing
    }

    fn send(&mut self, delay: Duration, group: Option<u8>, key: Option<(u8, u8)>) -> Gave {
        let draft = Draft {
            id: Id(self.sent as u128),
            payload: (),
            delay,
            group: group.map(|group| format!("{group}").into()),
            idempotency: key
                .map(|(key, payload)| (format!("{key}").into(), Fingerprint([payload; 32]))),
        };
        match self.queue.decide_send(self.now, draft) {
            Ok(Sending::New(event)) => {
                self.apply(event);
                self.sent += 1;
                Gave::Sent { number: self.sent - 1, duplicate: false }
            }
            Ok(Sending::Duplicate(first)) => Gave::Sent { number: number(first), duplicate: true },
            Err(refusal) => refused(refusal),
        }
    }

    fn receive(&mut self, most: u32, visibility: Duration) -> Gave {
        let mut delivered = Vec::new();
        let mut taken = BTreeSet::new();
        while delivered.len() < most as usize {
            // No message twice in one receive, which a timeout of zero would allow.
            if self.queue.first(self.now).is_some_and(|next| taken.contains(&next.id)) {
                break;
            }
            let event = match self.queue.decide_receive(self.now, visibility) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(_) if !delivered.is_empty() => break,
                Err(refusal) => return refused(refusal),
            };
            let receipt = event.receipt();
            self.apply(event);
            let Some(receipt) = receipt else { continue };
            self.receipts.push(receipt);
            let view = self.queue.get(self.now, receipt.key).expect("it was just delivered");
            taken.insert(view.id);
            delivered.push((number(view.id), view.attempts));
        }
        Gave::Delivered(delivered)
    }

    fn each_dead(
        &mut self,
        which: &Which,
        decide: impl Fn(&Queue<()>, Time, Key) -> Result<Event<()>, Refusal>,
    ) -> Gave {
        let Some(keys) = self.select(which) else { return refused(Refusal::NotDead) };
        let mut count = 0;
        for key in keys {
            match decide(&self.queue, self.now, key) {
                Ok(event) => {
                    self.apply(event);
                    count += 1;
                }
                // Named twice, and done.
                Err(Refusal::NotDead) => {}
                Err(_) if count > 0 => break,
                Err(refusal) => return refused(refusal),
            }
        }
        Gave::Count(count)
    }

    /// The dead letters meant, or none if one of those named is none.
    fn select(&self, which: &Which) -> Option<Vec<Key>> {
        let dead: Vec<View<'_, ()>> = self.queue.iter_dead(self.now).collect();
        let keys =
            |views: &mut dyn Iterator<Item = &View<'_, ()>>| views.map(|it| it.key).collect();
        match which {
            Which::All => Some(keys(&mut dead.iter())),
            Which::Oldest(most) => Some(keys(&mut dead.iter().take(*most as usize))),
            Which::Reason(reason) => {
                let died_of =
                    |view: &&View<'_, ()>| view.dead.is_some_and(|it| it.reason == *reason);
                Some(keys(&mut dead.iter().filter(died_of)))
            }
            Which::Messages(numbers) => {
                let find = |wanted: &usize| dead.iter().find(|view| number(view.id) == *wanted);
                numbers.iter().map(|wanted| find(wanted).map(|view| view.key)).collect()
            }
        }
    }

    pub(super) fn look(&mut self) -> Sight {
        while let Some(event) = self.queue.decide_expire(self.now) {
            self.apply(event);
        }
        let stats = self.queue.stats(self.now);
        let seen = |view: View<'_, ()>| Seen {
            number: number(view.id),
            phase: view.phase,
            delivery_count: view.attempts,
            receivable_in: match view.dead {
                Some(_) => Duration::ZERO,
                None => view.due.since(self.now),
            },
            last_error: view.last_error.map(str::to_owned),
            reason: view.dead.map(|dead| dead.reason),
        };
        let all = self.queue.iter_live(self.now).chain(self.queue.iter_dead(self.now));
        Sight {
            counts: [stats.delayed, stats.ready, stats.invisible, stats.dead],
            oldest_age: stats.oldest_age,
            dedup_entries: stats.dedup_entries,
            messages: all.map(seen).collect(),
        }
    }
}

fn number(id: Id) -> usize {
    usize::try_from(id.0).unwrap_or(usize::MAX)
}

fn refused(refusal: Refusal) -> Gave {
    let name = Name::parse("model").expect("a good name");
    Gave::Refused(Error::refused(refusal, &name).kind())
}

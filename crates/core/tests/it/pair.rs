//! A queue and its naive twin, driven in step. After every step everything that can be seen of the
//! two is compared, the structure is checked, and the events are replayed into a third queue.

use mailbox_core::{
    Draft, Event, Fingerprint, Freed, Id, Key, Phase, Queue, Receipt, Refusal, Sending, Time,
    Verdict, View,
};

use crate::command::Command;
use crate::naive::Naive;
use crate::rules::{FAR, Outcome, Rules, Seen, span, tick_of, time};

type Decision = Result<Option<Event<u64>>, Refusal>;

/// How the queue is driven. The default is right; a planted bug overrides one method.
pub(crate) trait Subject: Clone {
    fn receive(&self, queue: &Queue<u64>, now: Time, visibility: u64) -> Decision {
        queue.decide_receive(now, span(visibility))
    }

    fn settle(
        &self,
        queue: &Queue<u64>,
        now: Time,
        receipt: Receipt,
        verdict: Verdict,
    ) -> Decision {
        queue.decide_settle(now, receipt, verdict).map(Some)
    }

    /// What is really applied when `event` was decided.
    fn alter(&self, event: Event<u64>) -> Option<Event<u64>> {
        Some(event)
    }
}

/// Does everything as it should.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Honest;

impl Subject for Honest {}

#[derive(Debug, Clone)]
pub(crate) struct Pair<S> {
    subject: S,
    pub(crate) queue: Queue<u64>,
    /// Gets a copy of every event, under another hash seed.
    shadow: Option<Queue<u64>>,
    naive: Naive,
    first_rules: Rules,
    history: Vec<Event<u64>>,
    /// What the queue's next stamp was before each.
    stamps: Vec<u64>,
    clock: u64,
    keys: Vec<Key>,
    receipts: Vec<Receipt>,
}

impl<S: Subject> Pair<S> {
    pub(crate) fn new(subject: S, rules: &Rules) -> Self {
        Self {
            subject,
            queue: Queue::new(rules.policy(), 1),
            shadow: None,
            naive: Naive::new(rules.clone()),
            first_rules: rules.clone(),
            history: Vec::new(),
            stamps: Vec::new(),
            clock: 0,
            keys: Vec::new(),
            receipts: Vec::new(),
        }
    }

    /// Replays every event at once into a second queue, and compares after every step.
    pub(crate) fn shadowed(mut self) -> Self {
        self.shadow = Some(Queue::new(self.first_rules.policy(), 2));
        self
    }

    /// Every event from the `first` on, each with the queue's next stamp before it.
    pub(crate) fn history(&self, first: usize) -> Vec<(u64, Event<u64>)> {
        let events = self.stamps.iter().copied().zip(self.history.iter().cloned());
        events.skip(first).collect()
    }

    pub(crate) const fn deliveries(&self) -> usize {
        self.receipts.len()
    }

    pub(crate) const fn sent(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn dead(&self) -> usize {
        self.queue.iter_dead(Time::ZERO).count()
    }

    /// Runs a command on both, and compares what came of it and everything after it.
    pub(crate) fn step(&mut self, command: &Command) -> Outcome {
        let outcome = match command {
            Command::Wait(ticks) => {
                self.clock += ticks;
                Outcome::Nothing
            }
            Command::Back(ticks) => {
                self.clock = self.clock.saturating_sub(*ticks);
                Outcome::Nothing
            }
            Command::Expire => {
                let mut last = self.act(command);
                while last.changes() {
                    last = self.act(command);
                }
                last
            }
            _ => self.act(command),
        };
        self.check();
        outcome
    }

    /// After a story: everything replayed from nothing, and what is left received in order.
    pub(crate) fn finish(mut self) {
        self.assert_replay();
        self.clock = self.naive.now + 1_000;
        let most = self.queue.count() + 1;
        for _ in 0..most {
            if !self.act(&Command::Receive { visibility: 100 }).changes() {
                break;
            }
        }
        self.check();
    }

    pub(crate) fn assert_replay(&self) {
        let mut replayed = Queue::new(self.first_rules.policy(), 3);
        for event in &self.history {
            assert!(replayed.fits(event), "replay: {event:?} does not fit");
            drop(replayed.apply(event.clone()));
        }
        assert_eq!(replayed.snapshot(), self.queue.snapshot(), "replayed from nothing");
    }

    fn act(&mut self, command: &Command) -> Outcome {
        let expected = self.expect(command);
        let actual = match self.decide(command) {
            Ok(Some(event)) => self.commit(event),
            Ok(None) => Outcome::Nothing,
            Err(outcome) => outcome,
        };
        assert_eq!(actual, expected, "{command:?} at {}", self.clock);
        actual
    }

    fn expect(&mut self, command: &Command) -> Outcome {
        let (number, id) = (self.delivery(command), self.keys.len() as u64);
        let target = self.target(command);
        self.naive.run(self.clock, |naive| match command {
            Command::Send { delay, group, key } => naive.send(id, *delay, *group, *key),
            Command::Receive { visibility } => naive.receive(*visibility),
            Command::Settle { choice, .. } => match number {
                Some(number) => naive.settle(number, choice),
                None => Outcome::Nothing,
            },
            Command::Redrive(_) => target.map_or(Outcome::Nothing, |id| naive.redrive(id)),
            Command::Discard(_) => target.map_or(Outcome::Nothing, |id| naive.discard(id)),
            Command::Expire => naive.expire(),
            Command::Purge => naive.purge(),
            Command::Configure(rules) => naive.configure(rules.clone()),
            Command::Open => Outcome::Opened,
            Command::Wait(_) | Command::Back(_) => Outcome::Nothing,
        })
    }

    /// The real queue's decision; a refusal or a duplicate as the outcome that it is.
    fn decide(&self, command: &Command) -> Result<Option<Event<u64>>, Outcome> {
        let (queue, now) = (&self.queue, time(self.clock));
        let target = self.target(command).map(|id| self.keys[usize::try_from(id).unwrap()]);
        let decision = match command {
            Command::Send { delay, group, key } => {
                let id = self.keys.len() as u64;
                let draft = Draft {
                    delay: span(*delay),
                    group: group.map(|group| format!("g{group}").into()),
                    idempotency: key
                        .map(|(key, print)| (format!("k{key}").into(), Fingerprint([print; 32]))),
                    ..Draft::new(Id(id.into()), id)
                };
                match queue.decide_send(now, draft) {
                    Ok(Sending::New(event)) => Ok(Some(event)),
                    Ok(Sending::Duplicate(first)) => return Err(Outcome::Duplicate(number(first))),
                    Err(refusal) => Err(refusal),
                }
            }
            Command::Receive { visibility } => self.subject.receive(queue, now, *visibility),
            Command::Settle { choice, .. } => match self.delivery(command) {
                Some(delivery) => {
                    self.subject.settle(queue, now, self.receipts[delivery], choice.verdict())
                }
                None => Ok(None),
            },
            Command::Redrive(_) => target.map(|key| queue.decide_redrive(now, key)).transpose(),
            Command::Discard(_) => target.map(|key| queue.decide_discard(now, key)).transpose(),
            Command::Expire => Ok(queue.decide_expire(now)),
            Command::Purge => Ok(Some(queue.decide_purge(now))),
            Command::Configure(rules) => Ok(Some(queue.decide_configure(now, rules.policy()))),
            Command::Open => Ok(Some(queue.decide_open(now))),
            Command::Wait(_) | Command::Back(_) => Ok(None),
        };
        decision.map_err(|refusal| Outcome::Refused(without_hint(refusal)))
    }

    fn commit(&mut self, event: Event<u64>) -> Outcome {
        let stamp = self.queue.next_stamp();
        let outcome = self.outcome(&event);
        if let Event::Sent { key, .. } = &event {
            assert_eq!(*key, self.queue.next_key());
            self.keys.push(*key);
        }
        if let Some(receipt) = event.receipt() {
            let reused = self.receipts.iter().any(|old| old.lease >= receipt.lease);
            assert!(!reused, "V3: lease {:?} is not new", receipt.lease);
            self.receipts.push(receipt);
        }
        if let Some(altered) = self.subject.alter(event.clone()) {
            assert!(self.queue.fits(&altered), "decided, but does not fit: {altered:?}");
            let freed = self.queue.apply(altered);
            assert_freed(&outcome, &event, freed);
        }
        let once = !matches!(
            event,
            Event::Extended { .. }
                | Event::Purged { .. }
                | Event::Configured { .. }
                | Event::Opened { .. }
        );
        assert!(!(once && self.queue.fits(&event)), "happened, but fits again: {event:?}");
        if let Some(shadow) = &mut self.shadow {
            assert!(shadow.fits(&event), "does not fit the shadow: {event:?}");
            drop(shadow.apply(event.clone()));
        }
        self.history.push(event);
        self.stamps.push(stamp);
        outcome
    }

    fn outcome(&self, event: &Event<u64>) -> Outcome {
        let view = event.key().and_then(|key| self.queue.get(event.at(), key));
        let id = view.as_ref().map_or(self.keys.len() as u64, |view| number(view.id));
        match event {
            Event::Sent { .. } => Outcome::Sent(id),
            Event::Delivered { due, .. } => {
                let attempt = view.map_or(0, |view| view.attempts) + 1;
                Outcome::Delivered { id, attempt, deadline: tick_of(*due).unwrap() }
            }
            Event::DeadLettered { reason, .. } => Outcome::Died { id, reason: *reason },
            Event::Acknowledged { .. }
            | Event::Nacked { .. }
            | Event::Extended { .. }
            | Event::Returned { .. } => Outcome::Settled(id),
            Event::Redriven { .. } => Outcome::Redriven(id),
            Event::Discarded { .. } => Outcome::Discarded(id),
            Event::Purged { at } => {
                Outcome::Purged(self.queue.iter_live(*at).map(|view| number(view.id)).collect())
            }
            Event::Configured { .. } => Outcome::Configured,
            Event::Opened { .. } => Outcome::Opened,
        }
    }

    fn check(&self) {
        let (queue, now) = (&self.queue, time(self.clock));
        let naive = self.naive.at(self.clock);
        queue.assert_invariants();
        assert_eq!(queue.stats(now), naive.stats(), "stats");
        assert_eq!(queue.count(), queue.stats(now).live(), "M2");
        let live: Vec<_> = queue.iter_live(now).map(|view| self.see(&view)).collect();
        assert_eq!(live, naive.live(), "live messages, oldest first");
        let dead: Vec<_> = queue.iter_dead(now).map(|view| self.see(&view)).collect();
        assert_eq!(dead, naive.dead(), "dead letters, in order of dying");
        self.check_next(&naive);
        if let Some(shadow) = &self.shadow {
            assert_eq!(shadow.snapshot(), queue.snapshot(), "the shadow got the same events");
            assert_eq!(shadow.next_key(), queue.next_key());
        }
    }

    /// Who is next, when somebody is, and when retention has something to do.
    fn check_next(&self, naive: &Naive) {
        let (queue, now) = (&self.queue, time(self.clock));
        let probe = Command::Receive { visibility: 1 };
        let next = match self.decide(&probe) {
            Ok(event) => event.map_or(Outcome::Nothing, |event| self.outcome(&event)),
            Err(refused) => refused,
        };
        assert_eq!(next, naive.clone().receive(1), "who is next");
        assert_eq!(queue.is_receivable(now), naive.is_receivable());
        let first = queue.first(now).map(|view| number(view.id));
        assert_eq!(first, naive.first(), "whose turn it is");

        let latest = time(self.naive.now);
        let just_before = |at: Time| Time::from_nanos(at.as_nanos() - 1);
        match queue.next_due() {
            None => assert!(!self.naive.at(FAR).is_receivable(), "something will be receivable"),
            Some(due) => {
                let tick = tick_of(due).unwrap();
                assert!(queue.is_receivable(due) && self.naive.at(tick).is_receivable());
                if due > latest {
                    assert!(!queue.is_receivable(just_before(due)), "receivable before next_due");
                    assert!(!self.naive.at(tick - 1).is_receivable());
                }
            }
        }
        let expires = |tick: u64| self.naive.at(tick).expire().changes();
        match queue.next_expiry() {
            None => assert!(!expires(FAR), "something will expire"),
            Some(at) => {
                let tick = tick_of(at).unwrap();
                assert!(queue.decide_expire(at).is_some() && expires(tick), "nothing expires");
                if at > latest {
                    assert!(queue.decide_expire(just_before(at)).is_none());
                    assert!(!expires(tick - 1), "something expires before next_expiry");
                }
            }
        }
    }

    fn see(&self, view: &View<'_, u64>) -> Seen {
        assert_eq!(*view.payload, number(view.id), "a message kept its payload");
        let waits = matches!(view.phase, Phase::Delayed | Phase::Invisible);
        let delivery = |lease| self.receipts.iter().position(|receipt| receipt.lease == lease);
        Seen {
            id: number(view.id),
            phase: view.phase,
            attempts: view.attempts,
            entered: tick_of(view.entered).unwrap(),
            due: waits.then(|| tick_of(view.due).unwrap()),
            delivery: view.lease.and_then(delivery),
            error: view.last_error.map(str::to_owned),
            dead: view.dead.map(|dead| (dead.reason, tick_of(dead.at).unwrap())),
        }
    }

    fn delivery(&self, command: &Command) -> Option<usize> {
        match command {
            Command::Settle { back, .. } => self.receipts.len().checked_sub(back + 1),
            _ => None,
        }
    }

    fn target(&self, command: &Command) -> Option<u64> {
        match command {
            Command::Redrive(index) | Command::Discard(index) => {
                let dead = self.queue.iter_dead(Time::ZERO).nth(*index);
                dead.map(|view| number(view.id)).or((self.keys.len() as u64).checked_sub(1))
            }
            _ => None,
        }
    }
}

/// Payloads leave exactly when the message does.
fn assert_freed(outcome: &Outcome, event: &Event<u64>, freed: Freed<u64>) {
    match (outcome, event, freed) {
        (Outcome::Settled(id), Event::Acknowledged { .. }, Freed::One(payload))
        | (Outcome::Discarded(id), _, Freed::One(payload)) => assert_eq!(*id, payload),
        (Outcome::Purged(ids), _, Freed::Many(payloads)) => assert_eq!(*ids, payloads),
        (_, Event::Acknowledged { .. }, freed) => panic!("acknowledged, but freed {freed:?}"),
        (_, _, freed) => assert!(matches!(freed, Freed::Nothing), "freed {freed:?}"),
    }
}

fn number(id: Id) -> u64 {
    u64::try_from(id.0).unwrap()
}

/// When to ask again after `TooManyInFlight` is a hint: it has to be one, not an exact one.
fn without_hint(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::TooManyInFlight { max_in_flight, retry_after } => {
            assert!(!retry_after.is_zero(), "a hint to ask again at once");
            let retry_after = std::time::Duration::ZERO;
            Refusal::TooManyInFlight { max_in_flight, retry_after }
        }
        other => other,
    }
}

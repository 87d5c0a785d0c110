//! The queue once more, as plainly as it can be said: a vector of messages in the order in which
//! they entered, a vector for the line they stand in, and linear scans. Written from the contract;
//! shares no idea with the real one, so that one mistake is not made twice.
//!
//! The line is meant literally. Whoever becomes receivable joins it at the end (D7). Whoever is
//! handed out leaves an empty spot behind, so that an undone delivery can step back into it.

mod commands;

use mailbox_core::{DeadReason, Phase, Stats, Totals};

use crate::rules::{Outcome, Rules, Seen, span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not the first of its group; `due` is when its own delay is over.
    Behind { due: u64 },
    /// Becomes receivable at `due`. `decided` tells apart those that do at the same tick.
    Later { due: u64, decided: u64 },
    /// Handed out until `due`.
    Out { due: u64, decided: u64 },
    /// Stands in the line.
    Waiting,
}

#[derive(Debug, Clone)]
struct Message {
    id: u64,
    group: Option<u8>,
    entered: u64,
    attempts: u32,
    error: Option<String>,
    state: State,
    lease: Option<Lease>,
    death: Option<(DeadReason, u64)>,
}

/// A delivery that nobody has settled yet, in time or not.
#[derive(Debug, Clone, Copy)]
struct Lease {
    number: usize,
    hold_until: u64,
}

#[derive(Debug, Clone, Copy)]
struct Spot {
    id: u64,
    /// Empty: its message was handed out from here.
    empty: bool,
}

#[derive(Debug, Clone)]
struct UsedKey {
    key: u8,
    print: u8,
    id: u64,
    expires: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Naive {
    pub(crate) now: u64,
    rules: Rules,
    live: Vec<Message>,
    dead: Vec<Message>,
    line: Vec<Spot>,
    keys: Vec<UsedKey>,
    decisions: u64,
    deliveries: usize,
    totals: Totals,
}

impl Naive {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            now: 0,
            rules,
            live: Vec::new(),
            dead: Vec::new(),
            line: Vec::new(),
            keys: Vec::new(),
            decisions: 0,
            deliveries: 0,
            totals: Totals::default(),
        }
    }

    /// The queue as it will be at `tick` if nothing happens until then.
    pub(crate) fn at(&self, tick: u64) -> Self {
        let mut then = self.clone();
        then.now = then.now.max(tick);
        then.line_up();
        then
    }

    /// Runs a command at `tick`; time itself passes only with what changes something.
    pub(crate) fn run(&mut self, tick: u64, command: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        let mut next = self.at(tick);
        let outcome = command(&mut next);
        if outcome.changes() {
            next.line_up();
            *self = next;
        }
        outcome
    }

    pub(crate) fn is_receivable(&self) -> bool {
        self.first().is_some()
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.line.iter().find(|spot| !spot.empty).map(|spot| spot.id)
    }

    pub(crate) fn stats(&self) -> Stats {
        let keys = self.keys.iter().filter(|used| used.expires > self.now).count();
        Stats {
            delayed: self.count(Phase::Delayed),
            ready: self.count(Phase::Ready),
            invisible: self.count(Phase::Invisible),
            dead: self.dead.len() as u64,
            oldest_age: self.live.first().map(|oldest| span(self.now - oldest.entered)),
            dedup_entries: keys as u64,
            totals: self.totals,
        }
    }

    pub(crate) fn live(&self) -> Vec<Seen> {
        self.live.iter().map(see).collect()
    }

    pub(crate) fn dead(&self) -> Vec<Seen> {
        self.dead.iter().map(see).collect()
    }

    /// Everybody whose time has come stands up at the end of the line, the earliest first.
    fn line_up(&mut self) {
        let mut coming = Vec::new();
        for message in &mut self.live {
            match message.state {
                State::Later { due, decided } | State::Out { due, decided } if due <= self.now => {
                    coming.push((due, decided, message.id));
                    message.state = State::Waiting;
                }
                _ => {}
            }
        }
        coming.sort_unstable();
        self.line.extend(coming.iter().map(|&(_, _, id)| Spot { id, empty: false }));
    }

    fn enter(&mut self, id: u64, group: Option<u8>, due: u64) {
        let behind = group.is_some() && self.live.iter().any(|other| other.group == group);
        let decided = self.decide();
        self.live.push(Message {
            id,
            group,
            entered: self.now,
            attempts: 0,
            error: None,
            state: if behind { State::Behind { due } } else { State::Later { due, decided } },
            lease: None,
            death: None,
        });
    }

    /// Takes a message out of line; the next of its group is the first now.
    fn leave(&mut self, id: u64) -> Message {
        self.line.retain(|spot| spot.id != id);
        let index = self.live.iter().position(|message| message.id == id).unwrap();
        let message = self.live.remove(index);
        let (now, decided) = (self.now, self.decide());
        let next = self.live.iter_mut().find(|next| next.group == message.group);
        if message.group.is_some()
            && let Some(next) = next
            && let State::Behind { due } = next.state
        {
            next.state = State::Later { due: due.max(now), decided };
        }
        message
    }

    fn count(&self, wanted: Phase) -> u64 {
        self.live.iter().filter(|message| phase(message) == wanted).count() as u64
    }

    fn decide(&mut self) -> u64 {
        self.decisions += 1;
        self.decisions
    }

    fn message(&mut self, id: u64) -> &mut Message {
        self.live.iter_mut().find(|message| message.id == id).unwrap()
    }
}

fn phase(message: &Message) -> Phase {
    match message.state {
        _ if message.death.is_some() => Phase::Dead,
        State::Later { .. } => Phase::Delayed,
        State::Out { .. } => Phase::Invisible,
        State::Behind { .. } | State::Waiting => Phase::Ready,
    }
}

fn see(message: &Message) -> Seen {
    let phase = phase(message);
    Seen {
        id: message.id,
        phase,
        attempts: message.attempts,
        entered: message.entered,
        due: match message.state {
            State::Later { due, .. } | State::Out { due, .. } if phase != Phase::Dead => Some(due),
            _ => None,
        },
        delivery: message.lease.map(|lease| lease.number),
        error: message.error.clone(),
        dead: message.death,
    }
}

//! What waits in an inbox, as far as this process knows: an index over file names, kept up to date
//! by file events and put right by looking. Invariant: it may be wrong (somebody was faster), never
//! in a way that matters: whoever is taken from it is taken by a rename, which fails if it is gone;
//! and whoever it does not know, a look finds.
//!
//! Bounded: where there are more messages than [`MOST`], it knows those that are first in line and
//! remembers that there are others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mailbox_core::Time;

use crate::backends::directory::file_name::{Claim, FileName, Turn};
use crate::backends::directory::folders::{Shelf, Spot};

/// Most messages that are known, of those that wait and of those that somebody has.
const MOST: usize = 1 << 16;

/// A message, and where it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) spot: Spot,
    pub(crate) name: FileName,
    /// When its turn is. For one that somebody has: when that is over.
    pub(crate) turn: Turn,
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: Half,
    held: Half,
}

/// One of the two shelves that live messages are on.
#[derive(Debug, Default)]
struct Half {
    by_turn: BTreeMap<(Turn, Arc<str>), (Spot, FileName)>,
    turns: HashMap<Arc<str>, Turn>,
    claims: HashMap<Claim, Arc<str>>,
    /// There are others, behind all that are known; about so many.
    has_more: bool,
    beyond: u64,
}

impl Line {
    /// Something is there.
    pub(crate) fn appear(&mut self, seen: Seen) {
        let Seen { spot, name, turn } = seen;
        self.half(spot.shelf).insert(turn, name.to_string().into(), spot, name);
    }

    /// Something of this name is not there any more.
    pub(crate) fn vanish(&mut self, shelf: Shelf, name: &str) {
        let _ = self.half(shelf).remove(name);
    }

    /// Its turn, if it is known: what has no time in its name keeps its place in line.
    pub(crate) fn turn_of(&self, shelf: Shelf, name: &str) -> Option<Turn> {
        let half = if shelf == Shelf::Processing { &self.held } else { &self.waiting };
        half.turns.get(name).copied()
    }

    /// Takes out whoever is next, if its turn has come.
    pub(crate) fn next(&mut self, now: Time) -> Option<Seen> {
        let first = |half: &Half| half.by_turn.keys().next().map(|(turn, _)| *turn);
        let (waiting, held) = (first(&self.waiting), first(&self.held));
        let half = match (waiting, held) {
            (Some(waiting), Some(held)) if held < waiting => &mut self.held,
            (None, Some(_)) => &mut self.held,
            _ => &mut self.waiting,
        };
        half.take_due(now)
    }

    /// Takes out one that somebody had for too long.
    pub(crate) fn next_expired(&mut self, now: Time) -> Option<Seen> {
        self.held.take_due(now)
    }

    /// When the next one's turn is.
    pub(crate) fn next_turn(&self) -> Option<Time> {
        let first = |half: &Half| half.by_turn.keys().next().map(|(turn, _)| turn.due);
        first(&self.waiting).into_iter().chain(first(&self.held)).min()
    }

    /// Whether only a look can tell who is next: the known ones are used up, and there are others.
    pub(crate) fn is_used_up(&self) -> bool {
        [&self.waiting, &self.held].iter().any(|half| half.has_more && half.by_turn.is_empty())
    }

    /// The delivery with this claim, if it is known.
    pub(crate) fn claimed(&self, claim: Claim) -> Option<Seen> {
        let text = self.held.claims.get(&claim)?;
        let turn = *self.held.turns.get(text)?;
        let (spot, name) = self.held.by_turn.get(&(turn, Arc::clone(text)))?;
        Some(Seen { spot: *spot, name: name.clone(), turn })
    }

    /// How many somebody has, as far as is known; counts no further than `enough`.
    pub(crate) fn held(&self, now: Time, enough: u64) -> u64 {
        let all = self.held.by_turn.len() as u64 + self.held.beyond;
        if all < enough || self.held.has_more {
            return all;
        }
        let latest_first = self.held.by_turn.keys().rev();
        let enough = usize::try_from(enough).unwrap_or(usize::MAX);
        latest_first.take_while(|(turn, _)| turn.due > now).take(enough).count() as u64
    }

    fn half(&mut self, shelf: Shelf) -> &mut Half {
        if shelf == Shelf::Processing { &mut self.held } else { &mut self.waiting }
    }
}

impl Half {
    fn insert(&mut self, turn: Turn, text: Arc<str>, spot: Spot, name: FileName) {
        self.remove(&text);
        // Whoever is behind all that are known may be behind others too.
        let is_last = || self.by_turn.keys().next_back().is_none_or(|(last, _)| *last < turn);
        if self.has_more && is_last() {
            self.beyond += 1;
            return;
        }
        if let Some(held) = name.held {
            self.claims.insert(held.claim, Arc::clone(&text));
        }
        self.turns.insert(Arc::clone(&text), turn);
        self.by_turn.insert((turn, text), (spot, name));
        if self.by_turn.len() > MOST
            && let Some(((_, last), (_, name))) = self.by_turn.pop_last()
        {
            self.forget(&last, &name);
            self.has_more = true;
            self.beyond += 1;
        }
    }

    fn remove(&mut self, text: &str) -> Option<Seen> {
        let turn = *self.turns.get(text)?;
        let (spot, name) = self.by_turn.remove(&(turn, Arc::from(text)))?;
        self.forget(text, &name);
        Some(Seen { spot, name, turn })
    }

    fn forget(&mut self, text: &str, name: &FileName) {
        self.turns.remove(text);
        if let Some(held) = name.held {
            self.claims.remove(&held.claim);
        }
    }

    fn take_due(&mut self, now: Time) -> Option<Seen> {
        let first = self.by_turn.first_entry().filter(|first| first.key().0.due <= now)?;
        let ((turn, text), (spot, name)) = first.remove_entry();
        self.forget(&text, &name);
        Some(Seen { spot, name, turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::directory::file_name::Held;

    fn at(nanos: u64) -> Turn {
        Turn { due: Time::from_nanos(nanos), stamp: 0 }
    }

    fn seen(shelf: Shelf, base: &str, turn: u64) -> Seen {
        let mut name = FileName::new(base).unwrap();
        if shelf == Shelf::Processing {
            name.held = Some(Held {
                claim: Claim(u128::from(turn)),
                until: at(turn),
                timeout: std::time::Duration::from_secs(1),
                hold_until: None,
                owner: 1,
            });
        }
        Seen { spot: Spot { shelf, bucket: None }, name, turn: at(turn) }
    }

    #[test]
    fn whoever_is_next_is_taken_wherever_it_is() {
        let mut line = Line::default();
        line.appear(seen(Shelf::Incoming, "second", 20));
        line.appear(seen(Shelf::Processing, "first", 10));
        line.appear(seen(Shelf::Incoming, "third", 30));
        assert_eq!(line.next_turn(), Some(Time::from_nanos(10)));
        assert!(line.next(Time::from_nanos(9)).is_none());
        let order: Vec<String> = std::iter::from_fn(|| line.next(Time::from_nanos(25)))
            .map(|seen| seen.name.base().to_owned())
            .collect();
        assert_eq!(order, ["first", "second"]);
        line.vanish(Shelf::Incoming, "third.json");
        assert_eq!(line.next_turn(), None);
    }

    #[test]
    fn a_delivery_is_found_by_its_claim_as_long_as_it_is_there() {
        let mut line = Line::default();
        let held = seen(Shelf::Processing, "x", 7);
        line.appear(held.clone());
        assert_eq!(line.claimed(Claim(7)), Some(held.clone()));
        line.vanish(Shelf::Processing, &held.name.to_string());
        assert_eq!(line.claimed(Claim(7)), None);
    }

    #[test]
    fn of_too_many_the_first_are_known_and_that_there_are_others() {
        let mut line = Line::default();
        for turn in (0..MOST as u64 + 10).rev() {
            line.appear(seen(Shelf::Incoming, &format!("m{turn}"), turn));
        }
        assert!(!line.is_used_up());
        // One that comes behind all of them is left to a look.
        line.appear(seen(Shelf::Incoming, "late", u64::MAX - 1));
        for turn in 0..MOST as u64 {
            let next = line.next(Time::MAX).unwrap();
            assert_eq!(next.turn, at(turn));
        }
        assert!(line.next(Time::MAX).is_none());
        assert!(line.is_used_up());
    }
}

//! Looking into a room, and what can be done about its dead letters.

use std::time::Duration;

use mailbox_core::{Event, Id, Key, Phase, Queue, Refusal, Time, View};

use crate::backend::{Death, Peek, Record, Selection, Stats};
use crate::error::{Error, ErrorKind, Result};
use crate::home::keep::Keep;
use crate::home::room::{Room, STEPS_PER_LOCK};
use crate::id::{MessageId, ulid};
use crate::name::Name;

/// A message to be shown, its letter not opened yet.
struct Found<K: Keep> {
    id: MessageId,
    pinned: K::Pinned,
    phase: Phase,
    delivery_count: u32,
    receivable_in: Duration,
    last_error: Option<String>,
    death: Option<Death>,
}

impl<K: Keep> Room<K> {
    pub(crate) fn peek(&self, request: &Peek) -> Result<Vec<Record<K::Body>>> {
        let (state, now) = self.open_after_retention()?;
        let found = |view: View<'_, K::Slip>| self.found(now, &view);
        let queue = &state.queue;
        let found: Vec<Found<K>> = match request {
            Peek::Live { limit } => {
                queue.iter_live(now).filter_map(found).take(*limit as usize).collect()
            }
            Peek::Dead { after, limit } => queue
                .iter_dead(now)
                .skip_while(|view| view.dead.map(|dead| dead.order) <= *after)
                .filter_map(found)
                .take(*limit as usize)
                .collect(),
            Peek::These(ids) => {
                ids.iter().filter_map(|id| find(queue, now, id)).filter_map(found).collect()
            }
        };
        drop(state);
        found.into_iter().map(|found| self.open_letter(found)).collect()
    }

    pub(crate) fn stats(&self) -> Result<Stats> {
        let (state, now) = self.open_after_retention()?;
        let core = state.queue.stats(now);
        let waiters = state.waiters.len() as u64;
        drop(state);
        Ok(Stats {
            delayed: core.delayed,
            ready: core.ready,
            invisible: core.invisible,
            dead: core.dead,
            oldest_age: core.oldest_age,
            waiters,
            dedup_entries: core.dedup_entries,
            totals: core.totals,
            set_aside: 0,
            expires_in: None,
            durability: self.keep.durability(),
        })
    }

    /// The dead letters that are meant.
    pub(crate) fn dead_keys(&self, which: &Selection) -> Result<Vec<Key>> {
        select(&self.open()?.queue, self.clock.now(), which, &self.name)
    }

    /// Puts dead letters back in line, as far as it gets: `keys` are then those that are left.
    pub(crate) fn redrive(&self, keys: &mut &[Key]) -> Result<u64> {
        self.each_dead(keys, |queue, now, key| queue.decide_redrive(now, key))
    }

    /// Deletes dead letters, as far as it gets: `keys` are then those that are left.
    pub(crate) fn delete_dead(&self, keys: &mut &[Key]) -> Result<u64> {
        self.each_dead(keys, |queue, now, key| queue.decide_discard(now, key))
    }

    fn each_dead(
        &self,
        keys: &mut &[Key],
        decide: impl Fn(&Queue<K::Slip>, Time, Key) -> Result<Event<K::Slip>, Refusal>,
    ) -> Result<u64> {
        let mut done = 0;
        while !keys.is_empty() {
            let (steps, stopped) = self.some_dead(keys, &decide)?;
            done += steps;
            match stopped {
                // The count tells how far it got; the rest is still there.
                Some(_) if done > 0 => break,
                Some(error) => return Err(error),
                None => {}
            }
        }
        Ok(done)
    }

    /// As many as are done under one hold of the lock, and why not more.
    fn some_dead(
        &self,
        keys: &mut &[Key],
        decide: impl Fn(&Queue<K::Slip>, Time, Key) -> Result<Event<K::Slip>, Refusal>,
    ) -> Result<(u64, Option<Error>)> {
        let mut steps = Vec::new();
        let mut stopped = None;
        let mut state = self.open()?;
        let now = self.clock.now();
        for _ in 0..STEPS_PER_LOCK {
            let Some((key, rest)) = keys.split_first() else { break };
            let step = match decide(&state.queue, now, *key) {
                Ok(event) => self.commit(&mut state, now, event).map(Some),
                // Somebody else was faster with this one.
                Err(Refusal::NotDead) => Ok(None),
                Err(refusal) => Err(Error::refused(refusal, &self.name)),
            };
            match step {
                Ok(step) => steps.extend(step),
                Err(error) => {
                    stopped = Some(error);
                    break;
                }
            }
            *keys = rest;
        }
        drop(state);
        let done = steps.len() as u64;
        for step in steps {
            step.finish(&self.keep);
        }
        Ok((done, stopped))
    }

    /// What there is to show of a message before its letter is opened. Nothing as long as it is not
    /// durable: its sender does not know yet that it was sent.
    fn found(&self, now: Time, view: &View<'_, K::Slip>) -> Option<Found<K>> {
        if self.keep.not_before(view.payload).is_some() {
            return None;
        }
        Some(Found {
            id: view.id.into(),
            pinned: self.keep.pin(view.payload),
            phase: view.phase,
            delivery_count: view.attempts,
            receivable_in: if view.dead.is_some() { Duration::ZERO } else { view.due.since(now) },
            last_error: view.last_error.map(str::to_owned),
            death: view.dead.map(|dead| Death {
                reason: dead.reason,
                at: self.clock.wall_at(now).before(now.since(dead.at)),
                order: dead.order,
            }),
        })
    }

    fn open_letter(&self, found: Found<K>) -> Result<Record<K::Body>> {
        let fetched = self.keep.fetch(found.pinned)?;
        Ok(Record {
            id: found.id,
            letter: fetched.letter,
            phase: found.phase,
            delivery_count: found.delivery_count,
            receivable_in: found.receivable_in,
            last_error: fetched.damage.or(found.last_error),
            death: found.death,
        })
    }
}

fn find<'q, S>(queue: &'q Queue<S>, now: Time, id: &MessageId) -> Option<View<'q, S>> {
    let id = Id(id.as_ulid()?);
    queue.in_slot(now, ulid::slot(id)).filter(|view| view.id == id)
}

fn select<S>(queue: &Queue<S>, now: Time, which: &Selection, name: &Name) -> Result<Vec<Key>> {
    let all = queue.iter_dead(now);
    Ok(match which {
        Selection::All => all.map(|view| view.key).collect(),
        Selection::Oldest(most) => {
            all.take(usize::try_from(*most).unwrap_or(usize::MAX)).map(|view| view.key).collect()
        }
        Selection::Reason(reason) => all
            .filter(|view| view.dead.is_some_and(|dead| dead.reason == *reason))
            .map(|view| view.key)
            .collect(),
        Selection::These(ids) => {
            let key = |id: &MessageId| match find(queue, now, id) {
                Some(view) if view.dead.is_some() => Ok(view.key),
                _ => Err(Error::new(ErrorKind::NotFound, format!("no dead letter {id:.100}"))
                    .with_mailbox(name)),
            };
            ids.iter().map(key).collect::<Result<_>>()?
        }
    })
}

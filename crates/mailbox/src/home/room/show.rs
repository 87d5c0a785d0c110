//! Looking into a room, and what can be done about its dead letters.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use mailbox_core::{Event, Id, Key, Queue, Refusal, Time, View};

use crate::backend::{Death, Letter, Peek, Record, Selection, Stats};
use crate::error::{Error, ErrorKind, Result};
use crate::home::room::{Room, STEPS_PER_LOCK};
use crate::id::{MessageId, ulid};
use crate::name::Name;

type Letters<B> = Queue<Arc<Letter<B>>>;

impl<B> Room<B> {
    pub(crate) fn peek(&self, request: &Peek) -> Result<Vec<Record<B>>> {
        let (state, now) = self.open_after_retention()?;
        let record = |view: View<'_, Arc<Letter<B>>>| self.record(now, &view);
        let queue = &state.queue;
        let records = match request {
            Peek::Live { limit } => {
                queue.iter_live(now).take(*limit as usize).map(record).collect()
            }
            Peek::Dead { after, limit } => queue
                .iter_dead(now)
                .skip_while(|view| view.dead.map(|dead| dead.order) <= *after)
                .take(*limit as usize)
                .map(record)
                .collect(),
            Peek::These(ids) => {
                ids.iter().filter_map(|id| find(queue, now, id)).map(record).collect()
            }
        };
        Ok(records)
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
        })
    }

    pub(crate) fn redrive(&self, which: &Selection) -> Result<u64> {
        self.each_dead(which, |queue, now, key| queue.decide_redrive(now, key))
    }

    pub(crate) fn delete_dead(&self, which: &Selection) -> Result<u64> {
        self.each_dead(which, |queue, now, key| queue.decide_discard(now, key))
    }

    fn each_dead(
        &self,
        which: &Selection,
        decide: impl Fn(&Letters<B>, Time, Key) -> Result<Event<Arc<Letter<B>>>, Refusal>,
    ) -> Result<u64> {
        let keys = select(&self.open()?.queue, self.clock.now(), which, &self.name)?;
        let mut done = 0;
        for keys in keys.chunks(STEPS_PER_LOCK) {
            let (mut wakers, mut freed) = (Vec::new(), Vec::new());
            let mut state = self.open()?;
            let now = self.clock.now();
            let mut refused = None;
            for key in keys {
                match decide(&state.queue, now, *key) {
                    Ok(event) => {
                        let (gone, waker) = state.commit(now, event);
                        freed.push(gone);
                        wakers.extend(waker);
                        done += 1;
                    }
                    // Somebody else was faster with this one.
                    Err(Refusal::NotDead) => {}
                    Err(refusal) => {
                        refused = Some(refusal);
                        break;
                    }
                }
            }
            drop(state);
            drop(freed);
            wakers.into_iter().for_each(Waker::wake);
            match refused {
                // The count tells how far it got; the rest is still there.
                Some(_) if done > 0 => return Ok(done),
                Some(refusal) => return Err(Error::refused(refusal, &self.name)),
                None => {}
            }
        }
        Ok(done)
    }

    fn record(&self, now: Time, view: &View<'_, Arc<Letter<B>>>) -> Record<B> {
        Record {
            id: view.id.into(),
            letter: Arc::clone(view.payload),
            phase: view.phase,
            delivery_count: view.attempts,
            receivable_in: if view.dead.is_some() { Duration::ZERO } else { view.due.since(now) },
            last_error: view.last_error.map(str::to_owned),
            death: view.dead.map(|dead| Death {
                reason: dead.reason,
                at: self.clock.wall_at(now).before(now.since(dead.at)),
                order: dead.order,
            }),
        }
    }
}

fn find<'q, B>(
    queue: &'q Letters<B>,
    now: Time,
    id: &MessageId,
) -> Option<View<'q, Arc<Letter<B>>>> {
    let id = Id(id.as_ulid()?);
    queue.in_slot(now, ulid::slot(id)).filter(|view| view.id == id)
}

fn select<B>(queue: &Letters<B>, now: Time, which: &Selection, name: &Name) -> Result<Vec<Key>> {
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

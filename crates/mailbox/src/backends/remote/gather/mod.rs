//! Sends, and settlements, that are made one by one at the same time go out together. Nothing waits
//! for a timer: while so many requests of a mailbox are in flight, others gather, and go out in one
//! when the next is answered.
//!
//! Those who gather go out in the order they came, and what is sent after another send was answered
//! comes after it. Of sends that are made at the same time nothing more is promised: a few requests
//! are in flight at a time, and a service may carry them out in any order.
//!
//! Each runtime has its own: a request is made on one, and nobody has to drive that of another.
//!
//! Invariant: everybody gets the result of what is theirs, whoever leaves disturbs nobody, and
//! nothing goes out for one who was told that it has not, or may have.

mod apart;
mod entry;
#[cfg(test)]
#[cfg(any(feature = "grpc", feature = "oap"))]
pub(super) mod tests;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use mailbox_wire::call::Request;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::Inner;
use super::calls::{Again, Calls};
use super::door::{Failed, Outcome};
use super::local::Local;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

use apart::ask_apart;
use entry::{Asker, Entry};

/// Requests of a mailbox, and of a kind, that are in flight at a time.
const IN_FLIGHT: usize = 2;
/// Largest request that is put together.
const LARGEST: usize = 512 * 1024;
/// Most that gathers, in units; who comes then waits for room, in turn.
const ROOM: u32 = 64 * 1024;
/// What room is counted in.
const UNIT: usize = 1024;

/// Something that can be asked for together with others of its kind.
pub(super) trait Together: Sized + Send + 'static {
    type Answer: Send + 'static;

    /// Where those of its kind gather.
    fn gathering(local: &Local) -> &Gathering<Self>;

    /// About how long it is on the wire.
    fn wire_len(&self) -> usize;

    /// The request for these.
    fn request(mailbox: &Name, items: Vec<Self>) -> Request;

    /// What such a request was for.
    fn take_back(request: Request) -> Vec<Self>;

    /// Makes the request, which is for so many. One result for each.
    fn ask(
        calls: &Calls,
        request: &Request,
        again: Again,
        count: usize,
    ) -> impl Future<Output = Result<Vec<Result<Self::Answer>>, Failed>> + Send;
}

/// What may go out together: all of a mailbox that can be repeated, or cannot.
pub(super) type Lane = (Name, Again);

/// Those who gather.
pub(super) struct Gathering<T: Together> {
    lanes: Mutex<HashMap<Lane, Line<T>>>,
    pub(super) room: Arc<Semaphore>,
}

/// Those of a lane.
struct Line<T: Together> {
    in_flight: usize,
    waiting: VecDeque<Gatherer<T>>,
}

/// One of them.
type Gatherer<T> = Entry<T, <T as Together>::Answer>;

impl<T: Together> Gathering<T> {
    /// Whether nobody gathers.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.lock().is_empty()
    }
}

impl<T: Together> Default for Gathering<T> {
    fn default() -> Self {
        Self { lanes: Mutex::default(), room: Arc::new(Semaphore::new(ROOM as usize)) }
    }
}

/// Asks for one, with others who come at the same time.
pub(super) async fn ask_one<T: Together>(
    inner: &Arc<Inner>,
    lane: Lane,
    item: T,
) -> Result<T::Answer> {
    let local = inner.local();
    let units = u32::try_from(item.wire_len() / UNIT + 1).unwrap_or(ROOM).min(ROOM);
    let deadline = Instant::now() + inner.calls.longest();
    let room = Arc::clone(&T::gathering(&local).room).acquire_many_owned(units);
    let room = timeout_at(deadline, room).await.ok().and_then(Result::ok).ok_or_else(no_room)?;
    let (asker, answered, waiter) = Asker::new(room);
    // Never by the caller itself, who may stop polling: others would wait for it.
    if let Some(turn) = Turn::take_or_wait(inner, local, lane, Entry { item, asker }) {
        tokio::spawn(turn.go_on());
    }
    match timeout_at(deadline, answered).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) | Err(_) if waiter.0.leave() => Err(cut_short()),
        Ok(Err(_)) | Err(_) => Err(never_out()),
    }
}

/// What came of a request.
enum Asked<T: Together> {
    /// Everybody knows what became of theirs.
    Told,
    /// The same, and the next request would end so too; perhaps because it could not be made at
    /// all, for as long as a call has patience.
    OfAll { error: Error, is_unreachable: bool },
    /// It was refused, and certainly not carried out, because of something in it.
    Refused(Vec<Gatherer<T>>, Error),
}

/// Asks for these, each of which is somebody else's, but not for those who have left.
async fn ask<T: Together>(
    inner: &Inner,
    (mailbox, again): &Lane,
    entries: Vec<Gatherer<T>>,
) -> Asked<T> {
    let here = entries.into_iter().filter(|entry| entry.asker.go_out());
    let (items, askers): (Vec<_>, Vec<_>) = here.map(|entry| (entry.item, entry.asker)).unzip();
    let count = items.len();
    if count == 0 {
        return Asked::Told;
    }
    let request = T::request(mailbox, items);
    let failed = match T::ask(&inner.calls, &request, *again, count).await {
        Ok(results) => {
            askers.into_iter().zip(results).for_each(|(asker, result)| asker.tell(result));
            return Asked::Told;
        }
        Err(failed) => failed,
    };
    // What is wrong with one of them is nothing to the others.
    if count > 1 && may_be_of_one(&failed) {
        let entries = T::take_back(request).into_iter().zip(askers);
        let entries = entries.map(|(item, mut asker)| {
            asker.come_back(failed.is_open_before);
            Entry { item, asker }
        });
        return Asked::Refused(entries.collect(), failed.error);
    }
    let is_unreachable = failed.is_void();
    let error = failed.error;
    askers.into_iter().for_each(|asker| asker.tell(Err(error.clone())));
    match is_of_all(&error) {
        false => Asked::Told,
        true => Asked::OfAll { error, is_unreachable },
    }
}

/// Whether a request was refused, and certainly not carried out, because of something that need not
/// be true of each thing in it. The service itself has to say so: the kind of an error says nothing
/// about what was done.
fn may_be_of_one(failed: &Failed) -> bool {
    use ErrorKind::{Forbidden, InvalidParameter, TooLarge};
    let kinds = [Forbidden, InvalidParameter, TooLarge];
    failed.outcome == Outcome::Refused
        && (is_saturated(&failed.error) || kinds.contains(&failed.error.kind()))
}

/// Whether the next request would end so too, whatever is in it.
pub(super) fn is_of_all(error: &Error) -> bool {
    is_saturated(error) || matches!(error.kind(), ErrorKind::Connection | ErrorKind::Unauthorized)
}

fn is_saturated(error: &Error) -> bool {
    error.kind() == ErrorKind::Saturated
}

/// The right to have a request of a lane in flight. It is given up when nobody waits any more.
struct Turn<T: Together> {
    inner: Arc<Inner>,
    local: Arc<Local>,
    lane: Lane,
    is_over: bool,
    kind: PhantomData<fn() -> T>,
}

impl<T: Together> Turn<T> {
    /// Puts somebody in line, and gives a turn if there is one.
    fn take_or_wait(
        inner: &Arc<Inner>,
        local: Arc<Local>,
        lane: Lane,
        entry: Gatherer<T>,
    ) -> Option<Self> {
        let mut lanes = T::gathering(&local).lanes.lock();
        let line = lanes
            .entry(lane.clone())
            .or_insert_with(|| Line { in_flight: 0, waiting: VecDeque::new() });
        line.waiting.push_back(entry);
        if line.in_flight >= IN_FLIGHT {
            return None;
        }
        line.in_flight += 1;
        drop(lanes);
        Some(Self { inner: Arc::clone(inner), local, lane, is_over: false, kind: PhantomData })
    }

    /// Asks for those who wait, until nobody does.
    async fn go_on(mut self) {
        loop {
            let entries = self.next();
            if entries.is_empty() {
                return;
            }
            let begun = Instant::now();
            match ask(&self.inner, &self.lane, entries).await {
                Asked::Refused(entries, why) => {
                    ask_apart(&self.inner, &self.lane, entries, &why).await;
                }
                Asked::OfAll { error, is_unreachable: true } => {
                    self.tell_those_before(begun, &error)
                }
                Asked::Told | Asked::OfAll { .. } => {}
            }
        }
    }

    /// Whoever was in line by then has waited for as long as the request was tried: that is as much
    /// patience as anybody has.
    fn tell_those_before(&self, begun: Instant, error: &Error) {
        let mut told = Vec::new();
        if let Some(line) = T::gathering(&self.local).lanes.lock().get_mut(&self.lane) {
            while line.waiting.front().is_some_and(|entry| entry.asker.since <= begun) {
                told.extend(line.waiting.pop_front());
            }
        }
        // Not under the lock: whoever is told may ask again at once.
        told.into_iter().for_each(|entry| entry.asker.tell(Err(not_tried(error))));
    }

    /// Those who go out together next. If there are none, the turn is over: who comes now gets one.
    fn next(&mut self) -> Vec<Gatherer<T>> {
        let most = self.inner.abilities.max_messages as usize;
        let largest = LARGEST.min(self.inner.most / 2);
        let (mut entries, mut len) = (Vec::new(), 0);
        let mut lanes = T::gathering(&self.local).lanes.lock();
        let Some(line) = lanes.get_mut(&self.lane) else { return entries };
        while let Some(entry) = line.waiting.front() {
            len += entry.item.wire_len();
            if !entries.is_empty() && (entries.len() >= most || len > largest) {
                break;
            }
            // Those who have left need not be asked for.
            entries.extend(line.waiting.pop_front().filter(|entry| !entry.asker.has_left()));
        }
        if entries.is_empty() {
            self.is_over = true;
            leave(&mut lanes, &self.lane);
        }
        entries
    }
}

/// One fewer is in flight; those who wait when nobody is learn that nobody answers.
fn leave<T: Together>(lanes: &mut HashMap<Lane, Line<T>>, lane: &Lane) -> Option<Line<T>> {
    let line = lanes.get_mut(lane)?;
    line.in_flight -= 1;
    if line.in_flight == 0 { lanes.remove(lane) } else { None }
}

impl<T: Together> Drop for Turn<T> {
    /// Cut off in the middle, with the runtime for example: nothing can be asked any more.
    fn drop(&mut self) {
        if !self.is_over {
            let left = leave(&mut T::gathering(&self.local).lanes.lock(), &self.lane);
            drop(left);
        }
    }
}

/// What became of each. If an attempt before may have been carried out, that this one was refused
/// says nothing about that.
pub(super) fn doubted<A>(
    results: impl Iterator<Item = Result<A>>,
    is_in_doubt: bool,
) -> Vec<Result<A>> {
    let doubted = |error: Error| if is_in_doubt { error.with_doubt() } else { error };
    results.map(|result| result.map_err(doubted)).collect()
}

/// The service gave fewer results than there were things to do, or more.
pub(super) fn miscounted() -> Failed {
    let message = "the service does not answer as much as was asked";
    Failed::unusable(Error::new(ErrorKind::Internal, message)).doubted()
}

fn no_room() -> Error {
    let message = "too much waits to be sent: the call never went out";
    Error::new(ErrorKind::Connection, message)
}

fn cut_short() -> Error {
    let message = "the call was cut short: whether it took effect is in doubt";
    Error::new(ErrorKind::Connection, message).with_doubt()
}

fn never_out() -> Error {
    let message = "the call was cut short before it went out";
    Error::new(ErrorKind::Connection, message)
}

/// What is said to one who was not asked for, because the one before ended like this.
pub(super) fn not_tried(error: &Error) -> Error {
    match error.kind() {
        // What became of the one before is another matter, and so is whether that is in doubt.
        ErrorKind::Connection => never_out().with_source(error.clone()),
        _ if error.is_in_doubt() => {
            Error::new(error.kind(), error.message()).with_retry(error.retry())
        }
        _ => error.clone(),
    }
}

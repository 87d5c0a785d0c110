//! Taking back the space of old segments. Invariant: what is moved stays where it was until it is
//! on the disk where it goes; a crash at any point leaves at least one of the two.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mailbox_core::{Event, Id, Key, Policy};

use crate::backends::journal::format::Place;
use crate::backends::journal::format::event::{
    Remembered, decode_event, decode_kept, encode_kept, key_of,
};
use crate::backends::journal::format::fact::{Trimmed, encode_room};
use crate::backends::journal::format::letter::{EncodedLetter, LetterParts};
use crate::backends::journal::format::record::{Kind, Record, read};
use crate::backends::journal::format::segment::DATA_START;
use crate::backends::journal::planted::Bug;
use crate::backends::journal::shard::log::{Commit, Entry, position};
use crate::backends::journal::shard::segment::Segment;
use crate::backends::journal::shard::{Denied, JournalRoom, Shard, Use};

/// Bytes moved before they are waited for.
const STEP: u64 = 1 << 20;

/// A message on its way to the end of the log.
struct Move {
    room: Arc<JournalRoom>,
    key: Key,
    from: Place,
    to: Place,
}

/// Empties the oldest segment if there is too much on the disk, and adds it to `idle`. False if
/// there was nothing to do, or it could not be done now.
pub(super) fn oldest_if_wasteful(shard: &Shard, idle: &mut Vec<Arc<Segment>>) -> bool {
    if !shard.is_wasteful() {
        return false;
    }
    let active = {
        let log = shard.log.lock();
        if log.failed.is_some() {
            return false;
        }
        log.segment.number
    };
    let oldest = shard.segments.read().values().next().map(Arc::clone);
    let Some(victim) = oldest.filter(|oldest| oldest.number < active) else { return false };
    // Its last batch may still be on its way. Whoever writes that asks for care again.
    if shard.durable.load(Ordering::Acquire) < position(victim.number + 1, 0) {
        return false;
    }
    if shard.unmovable.load(Ordering::Relaxed) == victim.number || !is_worth_it(shard, &victim) {
        return false;
    }
    match empty(shard, &victim) {
        Ok(()) => {
            shard.log.lock().stuck = false;
            idle.push(victim);
            true
        }
        Err(Denied::NotYet) => {
            shard.log.lock().stuck = true;
            false
        }
        Err(Denied::Error(error)) => {
            tracing::error!(
                path = %victim.path.display(), %error,
                "cannot empty a segment: no space is taken back before the journal is opened again"
            );
            shard.unmovable.store(victim.number, Ordering::Relaxed);
            shard.log.lock().stuck = true;
            false
        }
    }
}

/// Whether there is space to move what is left in a segment. Moving may gain nothing by itself, if
/// nothing in this one is gone; but the next one cannot be emptied before it.
fn is_worth_it(shard: &Shard, victim: &Segment) -> bool {
    let mut log = shard.log.lock();
    if log.full.is_none() {
        return true;
    }
    // What has been delivered takes a little more when it is moved.
    let needed = victim.live_bytes() + victim.live_bytes() / 32 + (4 << 10);
    log.stuck = needed + shard.settling_room() > log.room();
    !log.stuck
}

fn empty(shard: &Shard, victim: &Arc<Segment>) -> Result<(), Denied> {
    // Also when nothing in it should matter any more: a mistake in the books must cost time, not
    // messages.
    move_out(shard, victim)?;
    let mut last = restate_rooms(shard, victim)?;
    let first_segment = victim.number + 1;
    if shard.workshop.planted.has(Bug::TrimBeforeSync) {
        last = None;
    }
    if let Some(commit) = last {
        commit.wait_here()?;
    }
    shard.first_segment.store(first_segment, Ordering::Relaxed);
    let mut fact = Vec::new();
    Trimmed { first_segment }.encode(&mut fact);
    let (place, commit) = shard.append_own(Kind::Trimmed, &fact)?;
    if !shard.workshop.planted.has(Bug::TrimBeforeSync) {
        commit.wait_here()?;
        // Where batches are not synced one by one, this is when it matters.
        shard.sync_segment(place.segment)?;
    }
    shard.segments.write().remove(&victim.number);
    shard.live_bytes.fetch_sub(victim.counted(), Ordering::Relaxed);
    shard.sealed_bytes.fetch_sub(u64::from(victim.len), Ordering::Relaxed);
    Ok(())
}

/// Writes everything in a segment that still matters again, at the end of the log.
fn move_out(shard: &Shard, victim: &Segment) -> Result<(), Denied> {
    let bytes = victim.read_all().map_err(|error| super::recover::io_error(&victim.path, error))?;
    let mut offset = DATA_START;
    let (mut moves, mut moved, mut last) = (Vec::new(), 0, None);
    loop {
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let step = read(rest, victim.salt)
            .map_err(|flaw| super::recover::damaged(&victim.path, offset, 0, &flaw).into())
            .and_then(|record| {
                let len = u32::try_from(record.len).unwrap_or(u32::MAX);
                let place = Place { segment: victim.number, offset, len };
                let appended = move_record(shard, place, &record, &mut moves)?;
                Ok((appended, len, record.kind == Kind::Sealed))
            });
        let (appended, len, is_last) = match step {
            Ok(step) => step,
            // What was moved has moved, whatever comes next.
            Err(denied) => return settle(shard, &mut moves, last).and(Err(denied)),
        };
        if let Some(commit) = appended {
            moved += u64::from(len);
            last = Some(commit);
        }
        if moved >= STEP || is_last {
            settle(shard, &mut moves, last.take())?;
            moved = 0;
        }
        if is_last {
            return Ok(());
        }
        offset += len;
    }
}

/// Waits until the moved messages are on the disk, and then lets the queue know where they are.
fn settle(shard: &Shard, moves: &mut Vec<Move>, commit: Option<Arc<Commit>>) -> Result<(), Denied> {
    if let Some(commit) = commit
        && !shard.workshop.planted.has(Bug::TrimBeforeSync)
    {
        commit.wait_here()?;
    }
    for Move { room, key, from, to } in moves.drain(..) {
        let gone = room.with_queue_of(|queue| {
            let is_there = queue.get(room.clock.now(), key).is_some_and(|it| *it.payload == from);
            // What was in a mailbox that was removed is let go of by whoever removed it.
            if is_there && shard.has_room(room.number()) {
                queue.relocate(key, to)
            } else {
                Some(to)
            }
        });
        shard.release(gone);
    }
    Ok(())
}

fn move_record(
    shard: &Shard,
    place: Place,
    record: &Record<'_>,
    moves: &mut Vec<Move>,
) -> Result<Option<Arc<Commit>>, Denied> {
    if !matches!(record.kind, Kind::Sent | Kind::Kept | Kind::Remembered) {
        return Ok(None);
    }
    let room = shard.rooms.read().get(&record.mailbox).and_then(std::sync::Weak::upgrade);
    let Some(room) = room else { return Ok(None) };
    if record.kind == Kind::Remembered {
        let Ok(Remembered { id, key, .. }) = Remembered::decode(record.fact) else {
            return Ok(None);
        };
        return remember(shard, &room, &key, id);
    }
    let (Ok((seq, slot)), Ok(letter)) =
        (key_of(record.kind, record.fact), LetterParts::parse(record.letter))
    else {
        return Ok(None);
    };
    let key = Key { seq, slot };
    let kept = room.with_queue_of(|queue| {
        let now = room.clock.now();
        let is_here = queue.get(now, key).is_some_and(|view| *view.payload == place);
        if !is_here || !shard.has_room(record.mailbox) {
            return Ok(None);
        }
        let Some(mut keepsake) = queue.keepsake(key) else { return Ok(None) };
        if shard.workshop.planted.has(Bug::StateNotMoved) {
            (keepsake.attempts, keepsake.lease) = (0, None);
        }
        let known = letter.key.and_then(|key| queue.remembered(key, keepsake.id));
        let expires = known.map(|(_, expires)| expires).filter(|expires| *expires > now);
        let mut fact = Vec::new();
        encode_kept(&keepsake, expires, &mut fact);
        let bytes = record.letter.to_vec();
        let letter = Arc::new(EncodedLetter { bytes, crc: record.letter_crc });
        let (kind, mailbox) = (Kind::Kept, record.mailbox);
        let entry = Entry { mailbox, kind, fact: &fact, letter: Some(&letter) };
        let appended = shard.append(entry, Use::Move)?;
        shard.note_key(appended.0, expires);
        Ok(Some(appended))
    });
    if let Some((to, commit)) = kept.map_err(|denied: Denied| denied)? {
        moves.push(Move { room, key, from: place, to });
        return Ok(Some(commit));
    }
    match (letter.key, id_of(record, &letter, place)) {
        (Some(key), Some(id)) => remember(shard, &room, key, id),
        _ => Ok(None),
    }
}

/// Writes an idempotency key again whose message is gone, or somewhere else.
fn remember(
    shard: &Shard,
    room: &JournalRoom,
    key: &str,
    id: Id,
) -> Result<Option<Arc<Commit>>, Denied> {
    if shard.workshop.planted.has(Bug::KeysNotMoved) {
        return Ok(None);
    }
    room.with_queue_of(|queue| {
        let known = queue.remembered(key, id).filter(|_| shard.has_room(room.number()));
        let Some((fingerprint, expires)) = known.filter(|it| it.1 > room.clock.now()) else {
            return Ok(None);
        };
        let mut fact = Vec::new();
        Remembered { id, key: key.into(), fingerprint, expires }.encode(&mut fact);
        let (kind, mailbox) = (Kind::Remembered, room.number());
        let entry = Entry { mailbox, kind, fact: &fact, letter: None };
        let (place, commit) = shard.append(entry, Use::Move)?;
        shard.note_key(place, Some(expires));
        shard.count_key(place);
        Ok(Some(commit))
    })
}

fn id_of(record: &Record<'_>, letter: &LetterParts<'_>, place: Place) -> Option<Id> {
    if record.kind == Kind::Kept {
        return decode_kept(record.fact, letter, place).ok().map(|(keepsake, _)| keepsake.id);
    }
    match decode_event(record.kind, record.fact, Some(letter), place) {
        Ok((_, Event::Sent { id, .. })) => Some(id),
        _ => None,
    }
}

/// Says again what mailboxes are called and which rules they have, if the segment said it last.
fn restate_rooms(shard: &Shard, victim: &Segment) -> Result<Option<Arc<Commit>>, Denied> {
    let rooms: Vec<Arc<JournalRoom>> =
        shard.rooms.read().values().filter_map(std::sync::Weak::upgrade).collect();
    let mut last = None;
    for room in rooms {
        if room.keep.stated_in() > victim.number {
            continue;
        }
        last = state_room(shard, &room, Use::Move)?.or(last);
    }
    Ok(last)
}

/// Writes what a mailbox is called, its rules and its counters, unless it was removed.
pub(crate) fn state_room(
    shard: &Shard,
    room: &JournalRoom,
    purpose: Use,
) -> Result<Option<Arc<Commit>>, Denied> {
    room.with_queue_of(|queue| {
        if !shard.has_room(room.number()) {
            return Ok(None);
        }
        let mut standing = queue.standing();
        if shard.workshop.planted.has(Bug::RulesNotMoved) && room.keep.stated_in() > 0 {
            standing.policy = Policy::default();
        }
        let mut fact = Vec::new();
        encode_room(room.name.as_str(), &standing, &mut fact);
        let (kind, mailbox) = (Kind::Room, room.number());
        let entry = Entry { mailbox, kind, fact: &fact, letter: None };
        let (place, commit) = shard.append(entry, purpose)?;
        room.keep.set_stated_in(place.segment);
        shard.count_statement(place);
        Ok(Some(commit))
    })
}

//! Facts about messages: the events of `mailbox-core`, and messages and keys as they stand.
//! Invariant: what a letter says (group, idempotency key, hash of the payload) is not said twice;
//! it is taken from the letter when a fact is read.
//!
//! Every fact about one message starts alike: `0 stamp u64  8 seq u64  16 slot u32  20 at u64`. The
//! stamp is the number that the queue would have given next when the event was applied.

use mailbox_core::{DeadReason, Event, Fingerprint, Id, Idempotency, Keepsake, Key, LeaseId, Time};

use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::cursor::{Cursor, put_error, put_text};
use crate::backends::journal::format::fact::{decode_policy, encode_policy};
use crate::backends::journal::format::letter::LetterParts;
use crate::backends::journal::format::record::Kind;

/// Instead of the time when an idempotency key expires: there is no key. One that expires at the
/// origin of time is no key either, because it was never found.
const NO_KEY: u64 = 0;

/// Appends the fact for an event, and says of which kind it is.
///
/// # Panics
/// For `Event::Opened`: the journal has a record of its own for that, for all queues at once.
pub(crate) fn encode_event<P>(stamp: u64, event: &Event<P>, out: &mut Vec<u8>) -> Kind {
    put_time_of(stamp, event.key(), event.at(), out);
    match event {
        Event::Sent { key: _, id, at: _, due, group: _, idempotency, payload: _ } => {
            put_id(*id, out);
            put_time(*due, out);
            put_time(idempotency.as_ref().map_or(Time::ZERO, |key| key.expires), out);
            Kind::Sent
        }
        Event::Delivered { key: _, lease, at: _, due, hold_until } => {
            out.extend_from_slice(&lease.to_bits().to_le_bytes());
            put_time(*due, out);
            put_time(*hold_until, out);
            Kind::Delivered
        }
        Event::Acknowledged { .. } => Kind::Acknowledged,
        Event::Nacked { key: _, at: _, due, error } => {
            put_time(*due, out);
            put_error(error.as_deref(), out);
            Kind::Nacked
        }
        Event::Extended { key: _, at: _, due } => {
            put_time(*due, out);
            Kind::Extended
        }
        Event::Returned { .. } => Kind::Returned,
        Event::DeadLettered { key: _, at: _, reason, error } => {
            out.push(reason_number(*reason));
            put_error(error.as_deref(), out);
            Kind::DeadLettered
        }
        Event::Redriven { .. } => Kind::Redriven,
        Event::Discarded { key: _, at: _, by_retention } => {
            out.push(u8::from(*by_retention));
            Kind::Discarded
        }
        Event::Purged { .. } => Kind::Purged,
        Event::Configured { at: _, policy } => {
            encode_policy(policy, out);
            Kind::Configured
        }
        Event::Opened { .. } => unreachable!("an open is a fact about the journal, not an event"),
    }
}

/// Stamp and event of a record. `letter` is that of a `Sent` one; `payload` stands for it.
pub(crate) fn decode_event<P>(
    kind: Kind,
    fact: &[u8],
    letter: Option<&LetterParts<'_>>,
    payload: P,
) -> Result<(u64, Event<P>), Flaw> {
    let mut cursor = Cursor::new(fact);
    let stamp = cursor.u64()?;
    let event = match kind {
        Kind::Purged => Event::Purged { at: cursor.time()? },
        Kind::Configured => {
            let at = cursor.time()?;
            Event::Configured { at, policy: Box::new(decode_policy(&mut cursor)?) }
        }
        Kind::Sent => decode_sent(&mut cursor, letter.ok_or(Flaw::Field("letter"))?, payload)?,
        _ => decode_change(kind, &mut cursor)?,
    };
    cursor.done()?;
    Ok((stamp, event))
}

fn decode_sent<P>(
    cursor: &mut Cursor<'_>,
    letter: &LetterParts<'_>,
    payload: P,
) -> Result<Event<P>, Flaw> {
    let (key, at) = (take_key(cursor)?, cursor.time()?);
    let (id, due) = (cursor.id()?, cursor.time()?);
    let idempotency = match cursor.u64()? {
        NO_KEY => None,
        expires => Some(Box::new(Idempotency {
            key: letter.key.ok_or(Flaw::Field("idempotency key"))?.into(),
            fingerprint: Fingerprint(*letter.hash),
            expires: Time::from_nanos(expires),
        })),
    };
    let group = letter.group.map(Box::from);
    Ok(Event::Sent { key, id, at, due, group, idempotency, payload })
}

/// An event of a message that is there already.
fn decode_change<P>(kind: Kind, cursor: &mut Cursor<'_>) -> Result<Event<P>, Flaw> {
    let (key, at) = (take_key(cursor)?, cursor.time()?);
    Ok(match kind {
        Kind::Delivered => Event::Delivered {
            key,
            lease: cursor.lease()?,
            at,
            due: cursor.time()?,
            hold_until: cursor.time()?,
        },
        Kind::Acknowledged => Event::Acknowledged { key, at },
        Kind::Nacked => Event::Nacked { key, at, due: cursor.time()?, error: cursor.error()? },
        Kind::Extended => Event::Extended { key, at, due: cursor.time()? },
        Kind::Returned => Event::Returned { key, at },
        Kind::DeadLettered => {
            let reason = take_reason(cursor)?.ok_or(Flaw::Field("reason"))?;
            Event::DeadLettered { key, at, reason, error: cursor.error()? }
        }
        Kind::Redriven => Event::Redriven { key, at },
        Kind::Discarded => Event::Discarded { key, at, by_retention: cursor.flag("by retention")? },
        other => return Err(Flaw::Kind(other.number())),
    })
}

/// Sequence number and slot of the message that a record is about.
pub(crate) fn key_of(kind: Kind, fact: &[u8]) -> Result<(u64, u32), Flaw> {
    match kind {
        Kind::Sent
        | Kind::Delivered
        | Kind::Acknowledged
        | Kind::Nacked
        | Kind::Extended
        | Kind::Returned
        | Kind::DeadLettered
        | Kind::Redriven
        | Kind::Discarded
        | Kind::Kept => {
            let mut cursor = Cursor::new(fact);
            cursor.take(8)?;
            Ok((cursor.u64()?, cursor.u32()?))
        }
        other => Err(Flaw::Kind(other.number())),
    }
}

/// Appends the fact for a message as it stands. `key_expires`: when the idempotency key that its
/// letter names is free again; `None` if that does not matter any more.
pub(crate) fn encode_kept<P>(keepsake: &Keepsake<P>, key_expires: Option<Time>, out: &mut Vec<u8>) {
    let Keepsake {
        key,
        id,
        payload: _,
        due,
        stamp,
        turn,
        entered,
        order,
        hold_until,
        lease,
        attempts,
        group: _,
        last_error,
        death,
    } = keepsake;
    put_time_of(*stamp, Some(*key), *entered, out);
    put_id(*id, out);
    put_time(*due, out);
    put_time(key_expires.unwrap_or(Time::ZERO), out);
    if is_untouched(keepsake) {
        return;
    }
    out.extend_from_slice(&order.to_le_bytes());
    put_time(turn.0, out);
    out.extend_from_slice(&turn.1.to_le_bytes());
    put_time(*hold_until, out);
    out.extend_from_slice(&lease.map_or(0, LeaseId::to_bits).to_le_bytes());
    out.extend_from_slice(&attempts.to_le_bytes());
    put_death(*death, out);
    put_error(last_error.as_deref(), out);
}

/// Whether nothing has happened to a message since it was sent. Then there is no more to say of it
/// than there was when it was sent, and moving it takes no more space: a full disk can be tidied.
fn is_untouched<P>(kept: &Keepsake<P>) -> bool {
    kept.order == kept.stamp
        && kept.turn == (kept.due, 0)
        && kept.hold_until == Time::MAX
        && kept.attempts == 0
        && kept.lease.is_none()
        && kept.death.is_none()
        && kept.last_error.is_none()
}

/// A message as it stands, and when its idempotency key expires.
pub(crate) fn decode_kept<P>(
    fact: &[u8],
    letter: &LetterParts<'_>,
    payload: P,
) -> Result<(Keepsake<P>, Option<Time>), Flaw> {
    let mut cursor = Cursor::new(fact);
    let stamp = cursor.u64()?;
    let (key, entered) = (take_key(&mut cursor)?, cursor.time()?);
    let (id, due) = (cursor.id()?, cursor.time()?);
    let key_expires = match cursor.u64()? {
        NO_KEY => None,
        _ if letter.key.is_none() => return Err(Flaw::Field("idempotency key")),
        expires => Some(Time::from_nanos(expires)),
    };
    let mut keepsake = Keepsake {
        key,
        id,
        payload,
        due,
        stamp,
        entered,
        order: stamp,
        turn: (due, 0),
        hold_until: Time::MAX,
        lease: None,
        attempts: 0,
        group: letter.group.map(Into::into),
        death: None,
        last_error: None,
    };
    if !cursor.is_empty() {
        keepsake.order = cursor.u64()?;
        keepsake.turn = (cursor.time()?, cursor.u64()?);
        keepsake.hold_until = cursor.time()?;
        keepsake.lease = cursor.lease_or_none()?;
        keepsake.attempts = cursor.u32()?;
        keepsake.death = take_death(&mut cursor)?;
        keepsake.last_error = cursor.error()?;
    }
    cursor.done()?;
    Ok((keepsake, key_expires))
}

/// An idempotency key whose message is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// The message that was sent under it.
    pub(crate) id: Id,
    /// The key.
    pub(crate) key: Box<str>,
    /// What was sent.
    pub(crate) fingerprint: Fingerprint,
    /// When it is free again.
    pub(crate) expires: Time,
}

impl Remembered {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_id(self.id, out);
        put_time(self.expires, out);
        out.extend_from_slice(&self.fingerprint.0);
        put_text(&self.key, out);
    }

    pub(crate) fn decode(fact: &[u8]) -> Result<Self, Flaw> {
        let mut cursor = Cursor::new(fact);
        let remembered = Self::take(&mut cursor)?;
        cursor.done()?;
        Ok(remembered)
    }

    /// Reads one off bytes that go on behind it.
    pub(super) fn take(cursor: &mut Cursor<'_>) -> Result<Self, Flaw> {
        let (id, expires) = (cursor.id()?, cursor.time()?);
        let fingerprint = Fingerprint(*cursor.array()?);
        let key = cursor.short_text(usize::from(u16::MAX), "idempotency key")?.into();
        Ok(Self { id, key, fingerprint, expires })
    }
}

/// How every fact about messages starts.
fn put_time_of(stamp: u64, key: Option<Key>, at: Time, out: &mut Vec<u8>) {
    out.extend_from_slice(&stamp.to_le_bytes());
    if let Some(key) = key {
        out.extend_from_slice(&key.seq.to_le_bytes());
        out.extend_from_slice(&key.slot.to_le_bytes());
    }
    put_time(at, out);
}

fn take_key(cursor: &mut Cursor<'_>) -> Result<Key, Flaw> {
    Ok(Key { seq: cursor.u64()?, slot: cursor.u32()? })
}

fn put_time(time: Time, out: &mut Vec<u8>) {
    out.extend_from_slice(&time.as_nanos().to_le_bytes());
}

fn put_id(id: Id, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.0.to_le_bytes());
}

/// Reason and time, in nine bytes; all zero if it is alive.
pub(super) fn put_death(death: Option<(DeadReason, Time)>, out: &mut Vec<u8>) {
    let (reason, at) = death.map_or((0, Time::ZERO), |(reason, at)| (reason_number(reason), at));
    out.push(reason);
    put_time(at, out);
}

pub(super) fn take_death(cursor: &mut Cursor<'_>) -> Result<Option<(DeadReason, Time)>, Flaw> {
    let (reason, at) = (take_reason(cursor)?, cursor.time()?);
    Ok(reason.map(|reason| (reason, at)))
}

const fn reason_number(reason: DeadReason) -> u8 {
    match reason {
        DeadReason::MaxAttempts => 1,
        DeadReason::Expired => 2,
        DeadReason::Rejected => 3,
        DeadReason::Integrity => 4,
        DeadReason::Decode => 5,
    }
}

/// A reason, or zero.
fn take_reason(cursor: &mut Cursor<'_>) -> Result<Option<DeadReason>, Flaw> {
    Ok(Some(match cursor.u8()? {
        0 => return Ok(None),
        1 => DeadReason::MaxAttempts,
        2 => DeadReason::Expired,
        3 => DeadReason::Rejected,
        4 => DeadReason::Integrity,
        5 => DeadReason::Decode,
        _ => return Err(Flaw::Field("reason")),
    }))
}

//! Facts about the log and about mailboxes as a whole. Invariant: a fact is read to its last byte,
//! and refused if it has another length. `Closed` says the same as [`Opened`], of the moment of the
//! stop; `Removed` has no bytes at all.

use mailbox_core::{LateSettle, Policy, Retention, Standing, Time, Totals};

use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::cursor::{Cursor, nanos, put_text};

/// Longest name of a mailbox that can be read, in bytes.
const NAME_LEN: usize = 255;

/// How queue time and the clock of the machine go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// This queue time was reached
    pub(crate) time: Time,
    /// when the clock of this boot of the machine
    pub(crate) boot: [u8; 16],
    /// showed this many nanoseconds.
    pub(crate) at: u64,
}

impl Anchor {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.time.as_nanos().to_le_bytes());
        out.extend_from_slice(&self.boot);
        out.extend_from_slice(&self.at.to_le_bytes());
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Flaw> {
        Ok(Self { time: cursor.time()?, boot: *cursor.array()?, at: cursor.u64()? })
    }
}

/// The journal was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Leases from now on belong to this epoch.
    pub(crate) epoch: u32,
    /// The number of the next mailbox.
    pub(crate) next_mailbox: u32,
    /// Each batch is synced before the next is written.
    pub(crate) synced: bool,
    /// The time when this was written.
    pub(crate) anchor: Anchor,
}

impl Opened {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.next_mailbox.to_le_bytes());
        out.push(u8::from(self.synced));
        self.anchor.encode(out);
    }

    pub(crate) fn decode(fact: &[u8]) -> Result<Self, Flaw> {
        let mut cursor = Cursor::new(fact);
        let opened = Self::read(&mut cursor)?;
        cursor.done()?;
        Ok(opened)
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Flaw> {
        Ok(Self {
            epoch: cursor.u32()?,
            next_mailbox: cursor.u32()?,
            synced: cursor.flag("synced")?,
            anchor: Anchor::decode(cursor)?,
        })
    }
}

/// The first record of every segment: what is known when no earlier segment can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of the segment before; 0 if there is none.
    pub(crate) previous: u32,
    /// The last record there.
    pub(crate) previous_lsn: u64,
    /// The first segment that is still needed.
    pub(crate) first_segment: u32,
    /// The present open of the journal, at the time when the segment was begun.
    pub(crate) opened: Opened,
}

impl Head {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.extend_from_slice(&self.previous_lsn.to_le_bytes());
        out.extend_from_slice(&self.first_segment.to_le_bytes());
        self.opened.encode(out);
    }

    pub(crate) fn decode(fact: &[u8]) -> Result<Self, Flaw> {
        let mut cursor = Cursor::new(fact);
        let head = Self {
            previous: cursor.u32()?,
            previous_lsn: cursor.u64()?,
            first_segment: cursor.u32()?,
            opened: Opened::read(&mut cursor)?,
        };
        cursor.done()?;
        Ok(head)
    }
}

/// The segment is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sealed {
    /// Records in the segment, this one included.
    pub(crate) records: u64,
}

impl Sealed {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.records.to_le_bytes());
    }

    pub(crate) fn decode(fact: &[u8]) -> Result<Self, Flaw> {
        let mut cursor = Cursor::new(fact);
        let sealed = Self { records: cursor.u64()? };
        cursor.done()?;
        Ok(sealed)
    }
}

/// Old segments are not needed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trimmed {
    /// The first that is.
    pub(crate) first_segment: u32,
}

impl Trimmed {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first_segment.to_le_bytes());
    }

    pub(crate) fn decode(fact: &[u8]) -> Result<Self, Flaw> {
        let mut cursor = Cursor::new(fact);
        let trimmed = Self { first_segment: cursor.u32()? };
        cursor.done()?;
        Ok(trimmed)
    }
}

/// A mailbox as it stands, without its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// Its name.
    pub(crate) name: String,
    /// Its rules and counters.
    pub(crate) standing: Standing,
}

impl Room {
    #[cfg(test)]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        encode_room(&self.name, &self.standing, out);
    }

    pub(crate) fn decode(fact: &[u8]) -> Result<Self, Flaw> {
        let mut cursor = Cursor::new(fact);
        let (name, standing) = decode_room(&mut cursor)?;
        cursor.done()?;
        Ok(Self { name, standing })
    }
}

/// Appends the fact about a mailbox: what it is called, and what it knows besides its messages.
pub(crate) fn encode_room(name: &str, standing: &Standing, out: &mut Vec<u8>) {
    debug_assert!(name.len() <= NAME_LEN, "names are checked before a mailbox is made");
    put_text(name, out);
    let Standing { policy, next_seq, next_stamp, next_lease, latest, totals } = standing;
    encode_policy(policy, out);
    for number in [*next_seq, *next_stamp, next_lease.to_bits(), latest.as_nanos()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in numbers(totals) {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

pub(super) fn decode_room(cursor: &mut Cursor<'_>) -> Result<(String, Standing), Flaw> {
    let name = cursor.short_text(NAME_LEN, "name")?.to_owned();
    let standing = Standing {
        policy: decode_policy(cursor)?,
        next_seq: cursor.u64()?,
        next_stamp: cursor.u64()?,
        next_lease: cursor.lease()?,
        latest: cursor.time()?,
        totals: Totals {
            sent: cursor.u64()?,
            delivered: cursor.u64()?,
            redelivered: cursor.u64()?,
            timed_out: cursor.u64()?,
            acknowledged: cursor.u64()?,
            dead_lettered: cursor.u64()?,
            redriven: cursor.u64()?,
            purged: cursor.u64()?,
            retention_dropped: cursor.u64()?,
        },
    };
    Ok((name, standing))
}

/// The totals in the order in which they are written.
const fn numbers(totals: &Totals) -> [u64; 9] {
    let Totals {
        sent,
        delivered,
        redelivered,
        timed_out,
        acknowledged,
        dead_lettered,
        redriven,
        purged,
        retention_dropped,
    } = *totals;
    [
        sent,
        delivered,
        redelivered,
        timed_out,
        acknowledged,
        dead_lettered,
        redriven,
        purged,
        retention_dropped,
    ]
}

/// Bits that say which of a policy's optional fields there are. A field that is not there is zero.
const MAX_SIZE: u16 = 1;
const MAX_ATTEMPTS: u16 = 1 << 1;
const READY_AGE: u16 = 1 << 2;
const READY_COUNT: u16 = 1 << 3;
const IN_FLIGHT_FACTOR: u16 = 1 << 4;
const DEAD_AGE: u16 = 1 << 5;
const DEAD_COUNT: u16 = 1 << 6;
const ALL_BITS: u16 = (1 << 7) - 1;

/// Rules, in 76 bytes.
pub(super) fn encode_policy(policy: &Policy, out: &mut Vec<u8>) {
    let Policy {
        max_size,
        max_in_flight,
        max_attempts,
        replay_window,
        dedup_capacity,
        late_settle,
        retention,
    } = policy;
    let Retention { ready_age, ready_count, in_flight_factor, dead_age, dead_count } = retention;
    let present = [
        (MAX_SIZE, max_size.is_some()),
        (MAX_ATTEMPTS, max_attempts.is_some()),
        (READY_AGE, ready_age.is_some()),
        (READY_COUNT, ready_count.is_some()),
        (IN_FLIGHT_FACTOR, in_flight_factor.is_some()),
        (DEAD_AGE, dead_age.is_some()),
        (DEAD_COUNT, dead_count.is_some()),
    ];
    let bits = present.iter().filter(|(_, there)| *there).fold(0, |bits, (bit, _)| bits | bit);
    out.extend_from_slice(&bits.to_le_bytes());
    let late_settle = match late_settle {
        LateSettle::Refuse => 0,
        LateSettle::UntilRedelivered => 1,
    };
    out.extend_from_slice(&[late_settle, 0]);
    out.extend_from_slice(&max_attempts.unwrap_or(0).to_le_bytes());
    let numbers = [
        max_size.unwrap_or(0),
        *max_in_flight,
        nanos(*replay_window),
        u64::try_from(*dedup_capacity).unwrap_or(u64::MAX),
        ready_age.map_or(0, nanos),
        ready_count.unwrap_or(0),
        dead_age.map_or(0, nanos),
        dead_count.unwrap_or(0),
    ];
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&in_flight_factor.unwrap_or(0).to_le_bytes());
}

pub(super) fn decode_policy(cursor: &mut Cursor<'_>) -> Result<Policy, Flaw> {
    let bits = cursor.u16()?;
    if bits & !ALL_BITS != 0 {
        return Err(Flaw::Field("rules"));
    }
    let late_settle = match cursor.u16()? {
        0 => LateSettle::Refuse,
        1 => LateSettle::UntilRedelivered,
        _ => return Err(Flaw::Field("late settle")),
    };
    let there = |bit: u16| bits & bit != 0;
    let max_attempts = cursor.u32()?;
    let max_size = cursor.u64()?;
    let max_in_flight = cursor.u64()?;
    let replay_window = cursor.duration()?;
    let dedup_capacity = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
    let (ready_age, ready_count) = (cursor.duration()?, cursor.u64()?);
    let (dead_age, dead_count) = (cursor.duration()?, cursor.u64()?);
    let in_flight_factor = cursor.u32()?;
    Ok(Policy {
        max_size: there(MAX_SIZE).then_some(max_size),
        max_in_flight,
        max_attempts: there(MAX_ATTEMPTS).then_some(max_attempts),
        replay_window,
        dedup_capacity,
        late_settle,
        retention: Retention {
            ready_age: there(READY_AGE).then_some(ready_age),
            ready_count: there(READY_COUNT).then_some(ready_count),
            in_flight_factor: there(IN_FLIGHT_FACTOR).then_some(in_flight_factor),
            dead_age: there(DEAD_AGE).then_some(dead_age),
            dead_count: there(DEAD_COUNT).then_some(dead_count),
        },
    })
}

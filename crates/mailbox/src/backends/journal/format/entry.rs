//! A message as it is in the index of a clean stop. Invariant: one that was never delivered, and
//! has nothing unusual, takes 72 bytes and is read without an allocation.
//!
//! ```text
//!  0 seq u64   8 slot u32  12 flags u32  16 id u128  32 due u64  40 stamp u64  48 entered u64
//! 56 segment u32  60 offset u32  64 len u32  68 attempts u32  72 what the flags announce
//! ```
//!
//! Behind that, in the order of the bits: lease u64 (0: none), hold_until u64, turn (u64, u64); the
//! group; the last error; reason u8 and time u64 of its death; order u64. Texts have a length in
//! front, of 16 bits.

use mailbox_core::{Keepsake, Key, LeaseId, Time};

use crate::backends::journal::format::cursor::{Cursor, put_error, put_text};
use crate::backends::journal::format::event::{put_death, take_death};
use crate::backends::journal::format::{Flaw, Place};

/// Length of a message without anything unusual.
pub(super) const MESSAGE: usize = 72;

/// What a message has besides the ordinary. It was delivered before.
const DELIVERED: u32 = 1;
const GROUP: u32 = 1 << 1;
const ERROR: u32 = 1 << 2;
const DEATH: u32 = 1 << 3;
/// Its number in the order of entering is not its stamp.
const ORDER: u32 = 1 << 4;
const ALL_BITS: u32 = (1 << 5) - 1;

pub(super) fn put_message(keepsake: &Keepsake<Place>, out: &mut Vec<u8>) {
    let Keepsake {
        key,
        id,
        payload: place,
        due,
        stamp,
        turn,
        entered,
        order,
        hold_until,
        lease,
        attempts,
        group,
        last_error,
        death,
    } = keepsake;
    let delivered = lease.is_some() || *hold_until != Time::MAX || *turn != (*due, 0);
    let flags = if delivered { DELIVERED } else { 0 }
        | if group.is_some() { GROUP } else { 0 }
        | if last_error.is_some() { ERROR } else { 0 }
        | if death.is_some() { DEATH } else { 0 }
        | if order == stamp { 0 } else { ORDER };
    let mut fixed = [0; MESSAGE];
    fixed[..8].copy_from_slice(&key.seq.to_le_bytes());
    fixed[8..12].copy_from_slice(&key.slot.to_le_bytes());
    fixed[12..16].copy_from_slice(&flags.to_le_bytes());
    fixed[16..32].copy_from_slice(&id.0.to_le_bytes());
    fixed[32..40].copy_from_slice(&due.as_nanos().to_le_bytes());
    fixed[40..48].copy_from_slice(&stamp.to_le_bytes());
    fixed[48..56].copy_from_slice(&entered.as_nanos().to_le_bytes());
    fixed[56..60].copy_from_slice(&place.segment.to_le_bytes());
    fixed[60..64].copy_from_slice(&place.offset.to_le_bytes());
    fixed[64..68].copy_from_slice(&place.len.to_le_bytes());
    fixed[68..].copy_from_slice(&attempts.to_le_bytes());
    out.extend_from_slice(&fixed);
    if delivered {
        out.extend_from_slice(&lease.map_or(0, LeaseId::to_bits).to_le_bytes());
        out.extend_from_slice(&hold_until.as_nanos().to_le_bytes());
        out.extend_from_slice(&turn.0.as_nanos().to_le_bytes());
        out.extend_from_slice(&turn.1.to_le_bytes());
    }
    if let Some(group) = group {
        put_text(group, out);
    }
    if last_error.is_some() {
        put_error(last_error.as_deref(), out);
    }
    if death.is_some() {
        put_death(*death, out);
    }
    if order != stamp {
        out.extend_from_slice(&order.to_le_bytes());
    }
}

#[inline]
pub(super) fn take_message(cursor: &mut Cursor<'_>) -> Result<Keepsake<Place>, Flaw> {
    let mut fixed = Cursor::new(cursor.array::<MESSAGE>()?);
    let (seq, slot, flags) = (fixed.u64()?, fixed.u32()?, fixed.u32()?);
    if flags & !ALL_BITS != 0 {
        return Err(Flaw::Field("flags of a message"));
    }
    let id = fixed.id()?;
    let (due, stamp, entered) = (fixed.time()?, fixed.u64()?, fixed.time()?);
    let payload = Place { segment: fixed.u32()?, offset: fixed.u32()?, len: fixed.u32()? };
    let mut keepsake = Keepsake {
        key: Key { seq, slot },
        id,
        payload,
        due,
        stamp,
        turn: (due, 0),
        entered,
        order: stamp,
        hold_until: Time::MAX,
        lease: None,
        attempts: fixed.u32()?,
        group: None,
        last_error: None,
        death: None,
    };
    if flags != 0 {
        take_unusual(flags, cursor, &mut keepsake)?;
    }
    Ok(keepsake)
}

fn take_unusual(
    flags: u32,
    cursor: &mut Cursor<'_>,
    keepsake: &mut Keepsake<Place>,
) -> Result<(), Flaw> {
    if flags & DELIVERED != 0 {
        keepsake.lease = cursor.lease_or_none()?;
        keepsake.hold_until = cursor.time()?;
        keepsake.turn = (cursor.time()?, cursor.u64()?);
    }
    if flags & GROUP != 0 {
        keepsake.group = Some(cursor.short_text(usize::from(u16::MAX), "group")?.into());
    }
    if flags & ERROR != 0 {
        keepsake.last_error = cursor.error()?;
    }
    if flags & DEATH != 0 {
        keepsake.death = Some(take_death(cursor)?.ok_or(Flaw::Field("reason"))?);
    }
    if flags & ORDER != 0 {
        keepsake.order = cursor.u64()?;
    }
    Ok(())
}

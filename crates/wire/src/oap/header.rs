//! The 38 bytes before every capability and payload, and in which order they are checked.
//! Invariant: of a header that is wrong in two ways, the way that comes first in the protocol is
//! the one that is named.

use super::Flags;
use super::frame::TooLarge;
use super::malformed::{Fault, Malformed};

/// Length of a header.
pub const HEADER_LEN: usize = 38;
/// Longest frame, header included.
pub const MAX_FRAME: usize = 1_048_576;
/// Largest payload of a frame without a capability.
pub const MAX_PAYLOAD: usize = MAX_FRAME - HEADER_LEN;
/// Largest payload of a part of an answer.
pub const CHUNK: usize = 65_536;
/// What the payload of one frame may inflate to.
pub const MAX_INFLATED: usize = 8 << 20;
/// Most requests of a connection that are not answered.
pub const MAX_INFLIGHT: usize = 64;
/// The version that this is.
pub const VERSION: u16 = 1;

/// Two sides get to know each other.
pub const APP_HELLO: u16 = 0;
/// The mailbox in JSON.
pub const APP_JSON: u16 = 0x0201;
/// The mailbox in protobuf.
pub const APP_PROTO: u16 = 0x0202;

/// A header that is in order, or is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Length of the frame, header included.
    pub len: u32,
    /// What it is.
    pub flags: Flags,
    /// What became of a request; 0 on requests and parts.
    pub code: u16,
    /// What the payload is.
    pub app: u16,
    /// For whom, or 0.
    pub tenant: u128,
    /// Length of the capability behind it.
    pub cap_len: u16,
    /// Which request it belongs to.
    pub corr_id: u64,
}

impl Header {
    /// Of a frame without tenant and capability; its length is not known yet.
    #[must_use]
    pub const fn new(flags: Flags, app: u16, corr_id: u64) -> Self {
        Self { len: 0, flags, code: 0, app, tenant: 0, cap_len: 0, corr_id }
    }

    /// Of an answer to this request, or of a part of one; its length is not known yet.
    #[must_use]
    pub const fn answer(&self, flags: Flags, code: u16) -> Self {
        Self { code, tenant: self.tenant, ..Self::new(flags, self.app, self.corr_id) }
    }

    /// The same, for a frame with so much behind the header.
    ///
    /// # Errors
    /// The frame would be larger than [`MAX_FRAME`].
    pub const fn sized(self, cap_len: usize, payload_len: usize) -> Result<Self, TooLarge> {
        let len = HEADER_LEN.saturating_add(cap_len).saturating_add(payload_len);
        if len > MAX_FRAME || cap_len > u16::MAX as usize {
            return Err(TooLarge { len });
        }
        Ok(Self { len: len as u32, cap_len: cap_len as u16, ..self })
    }

    /// How much of the frame is payload.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        (self.len as usize).saturating_sub(HEADER_LEN + self.cap_len as usize)
    }

    /// As it goes over the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&self.len.to_be_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[8..10].copy_from_slice(&self.code.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.app.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.tenant.to_be_bytes());
        bytes[28..30].copy_from_slice(&self.cap_len.to_be_bytes());
        bytes[30..].copy_from_slice(&self.corr_id.to_be_bytes());
        bytes
    }

    /// Reads and checks the header that these bytes begin with; nothing if it is not all there.
    ///
    /// # Errors
    /// The first thing that is wrong with it, in the protocol's order.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(len) = field(bytes, 0).map(u32::from_be_bytes) else { return Ok(None) };
        // A frame may be shorter than a header. What follows is then the next one's.
        let end = HEADER_LEN.min(len as usize);
        if bytes.len() < end {
            return Ok(None);
        }
        let head = &bytes[..end];
        let corr_id = field(head, 30).map(u64::from_be_bytes).unwrap_or_default();
        check(len, head).map_err(|fault| Malformed::new(fault, corr_id))
    }
}

/// The bytes of a field, if they are there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// What is wrong with a header that may be too short.
fn check(len: u32, head: &[u8]) -> Result<Option<Header>, Fault> {
    let short = |at| field(head, at).map(u16::from_be_bytes);
    let flags = short(6).map(Flags::from_bits);
    if let Some(flags) = flags.filter(|flags| !flags.is_known()) {
        return Err(Fault::Flags(flags.bits()));
    }
    if let Some(version) = short(4).filter(|version| *version != VERSION) {
        return Err(Fault::Version(version));
    }
    if len == 0 {
        return Err(Fault::Empty);
    }
    if len as usize > MAX_FRAME {
        return Err(Fault::TooLong(len));
    }
    let cap_len = short(28);
    if let (Some(flags), Some(1..)) = (flags, cap_len)
        && !flags.contains(Flags::START)
    {
        return Err(Fault::CapabilityWithoutStart);
    }
    let whole = || {
        Some(Header {
            len,
            flags: flags?,
            code: short(8)?,
            app: short(10)?,
            tenant: u128::from_be_bytes(field(head, 12)?),
            cap_len: cap_len?,
            corr_id: u64::from_be_bytes(field(head, 30)?),
        })
    };
    let header = whole().ok_or(Fault::Truncated(len))?;
    if HEADER_LEN + usize::from(header.cap_len) > len as usize {
        return Err(Fault::CapabilityLength(header.cap_len));
    }
    Ok(Some(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header that is in order, with changes.
    fn bytes(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let header = Header { code: 7, tenant: 5, ..Header::new(Flags::REQ, APP_JSON, 99) };
        let mut bytes = header.sized(0, 10).unwrap().to_bytes().to_vec();
        for (at, change) in changes {
            bytes[*at..*at + change.len()].copy_from_slice(change);
        }
        bytes
    }

    const BAD_FLAGS: (usize, &[u8]) = (6, &[1, 1]);
    const BAD_VERSION: (usize, &[u8]) = (4, &[0, 2]);
    const TOO_LONG: (usize, &[u8]) = (0, &[0, 0x10, 0, 1]);
    const CAPABILITY: (usize, &[u8]) = (28, &[0, 20]);
    const WITH_START: (usize, &[u8]) = (6, &[0, 9]);

    #[test]
    fn the_first_thing_that_is_wrong_is_named() {
        let short = (0, &[0, 0, 0, 34][..]);
        let (flags, version) = (Fault::Flags(0x101), Fault::Version(2));
        for (changes, fault) in [
            (&[BAD_FLAGS][..], flags),
            (&[BAD_FLAGS, BAD_VERSION, TOO_LONG, CAPABILITY], flags),
            (&[BAD_FLAGS, BAD_VERSION, CAPABILITY, short], flags),
            (&[BAD_VERSION], version),
            (&[BAD_VERSION, TOO_LONG, CAPABILITY], version),
            (&[BAD_VERSION, CAPABILITY, short], version),
            (&[TOO_LONG], Fault::TooLong(1_048_577)),
            (&[TOO_LONG, CAPABILITY], Fault::TooLong(1_048_577)),
            (&[CAPABILITY], Fault::CapabilityWithoutStart),
            (&[CAPABILITY, short], Fault::CapabilityWithoutStart),
            (&[CAPABILITY, WITH_START, short], Fault::Truncated(34)),
            (&[short], Fault::Truncated(34)),
            (&[CAPABILITY, WITH_START], Fault::CapabilityLength(20)),
        ] {
            let found = Header::read(&bytes(changes)).unwrap_err();
            assert_eq!(found.fault, fault, "{changes:?}");
            let is_readable = !changes.contains(&short);
            assert_eq!(found.corr_id(), if is_readable { 99 } else { 0 }, "{changes:?}");
            assert_eq!(found.code(), if matches!(fault, Fault::TooLong(_)) { 413 } else { 400 });
        }
    }

    #[test]
    fn a_frame_shorter_than_a_header_is_checked_as_far_as_it_goes() {
        for len in 0..HEADER_LEN as u8 {
            let size = (0, &[0, 0, 0, len][..]);
            let wrong = [size, BAD_FLAGS, BAD_VERSION, CAPABILITY];
            let expected = match len {
                0 => Fault::Empty,
                1..=5 => Fault::Truncated(len.into()),
                6..=7 => Fault::Version(2),
                _ => Fault::Flags(0x101),
            };
            let end = usize::from(len).max(4);
            assert_eq!(Header::read(&bytes(&wrong)[..end]).unwrap_err().fault, expected, "{len}");
            let expected = match len {
                0 => Fault::Empty,
                30.. => Fault::CapabilityWithoutStart,
                _ => Fault::Truncated(len.into()),
            };
            let bytes = bytes(&[size, CAPABILITY]);
            assert_eq!(Header::read(&bytes[..end]).unwrap_err().fault, expected, "{len}");
            for less in 0..end {
                assert_eq!(Header::read(&bytes[..less]), Ok(None), "{less} of {len}");
            }
        }
    }

    #[test]
    fn the_bounds_themselves_are_in_order() {
        for (cap_len, payload_len) in [(0, 0), (0, MAX_PAYLOAD), (20, MAX_PAYLOAD - 20), (65535, 0)]
        {
            let header = Header::new(Flags::REQ | Flags::START, APP_JSON, u64::MAX);
            let header = header.sized(cap_len, payload_len).unwrap();
            assert_eq!(Header::read(&header.to_bytes()), Ok(Some(header)));
            assert_eq!(header.payload_len(), payload_len);
            assert!(header.sized(cap_len + 1, MAX_PAYLOAD - cap_len).is_err());
        }
        let header = Header::new(Flags::REQ, APP_JSON, 1);
        assert_eq!(header.sized(0, MAX_PAYLOAD + 1), Err(TooLarge { len: MAX_FRAME + 1 }));
        assert!(header.sized(65536, 0).is_err());
        assert!(header.sized(usize::MAX, usize::MAX).is_err());
    }

    #[test]
    fn an_answer_is_for_whoever_asked() {
        let asked = Header { tenant: 3, ..Header::new(Flags::REQ | Flags::START, APP_PROTO, 7) };
        let asked = asked.sized(5, 5).unwrap();
        let answer = asked.answer(Flags::RESP, 404);
        let expected = Header { code: 404, tenant: 3, ..Header::new(Flags::RESP, APP_PROTO, 7) };
        assert_eq!(answer, expected);
    }
}

//! A whole frame, and how one is written, in one piece or around a payload that is not written yet.

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::compress::{deflate, inflate};
use super::malformed::Malformed;
use super::{CHUNK, Flags, HEADER_LEN, Header, MAX_FRAME, MAX_INFLATED, MAX_PAYLOAD};

/// A frame.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// What it is.
    pub flags: Flags,
    /// What became of a request; 0 on requests and parts.
    pub code: u16,
    /// What the payload is.
    pub app: u16,
    /// For whom, or 0.
    pub tenant: u128,
    /// Which request it belongs to.
    pub corr_id: u64,
    /// The capability, if there is one.
    pub cap: Bytes,
    /// The payload, as it is on the wire.
    pub payload: Bytes,
}

/// A frame would be larger than one may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// How large.
    pub len: usize,
}

impl Frame {
    /// A frame without a capability. The header's lengths do not matter.
    #[must_use]
    pub fn new(header: Header, payload: Bytes) -> Self {
        let Header { flags, code, app, tenant, corr_id, .. } = header;
        Self { flags, code, app, tenant, corr_id, cap: Bytes::new(), payload }
    }

    /// What is written before capability and payload.
    ///
    /// # Errors
    /// The frame is larger than [`MAX_FRAME`].
    pub fn header(&self) -> Result<Header, TooLarge> {
        let &Self { flags, code, app, tenant, corr_id, .. } = self;
        let header = Header { code, tenant, ..Header::new(flags, app, corr_id) };
        header.sized(self.cap.len(), self.payload.len())
    }

    /// Adds it as it goes over the wire.
    ///
    /// # Errors
    /// The frame is larger than [`MAX_FRAME`]; nothing is added.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), TooLarge> {
        let header = self.header()?;
        out.reserve(header.len as usize);
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(&self.cap);
        out.extend_from_slice(&self.payload);
        Ok(())
    }

    /// The payload; inflated, if it is compressed.
    ///
    /// # Errors
    /// It does not inflate, or to more than [`MAX_INFLATED`]. The connection is still good.
    pub fn plain_payload(&self) -> Result<Bytes, Malformed> {
        if !self.flags.contains(Flags::COMP) {
            return Ok(self.payload.clone());
        }
        let inflated = inflate(&self.payload, MAX_INFLATED);
        inflated.map_err(|malformed| Malformed::new(malformed.fault, self.corr_id))
    }
}

impl fmt::Debug for Frame {
    /// Neither capability nor payload: whoever has one may use it, and the other is nobody's
    /// business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("flags", &self.flags)
            .field("code", &self.code)
            .field("app", &self.app)
            .field("corr_id", &self.corr_id)
            .field("cap_len", &self.cap.len())
            .field("payload_len", &self.payload.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a frame of {} bytes: at most {MAX_FRAME}, send it in parts", self.len)
    }
}

impl std::error::Error for TooLarge {}

/// A frame whose payload is being written right behind its header, so that it is never copied.
/// Nothing of it stays in the buffer unless it is finished.
#[must_use = "it has to be finished"]
pub struct Begun<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    header: Header,
    is_finished: bool,
}

impl<'a> Begun<'a> {
    /// Makes room for the header. Its lengths do not matter; there is no capability.
    pub fn new(out: &'a mut Vec<u8>, header: Header) -> Self {
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        Self { out, start, header, is_finished: false }
    }

    /// Where the payload is to be added. What is there already must stay.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// The payload, as far as it is written.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.out[self.start + HEADER_LEN..]
    }

    /// Compresses what is written, if that makes it smaller, it fits into a frame then, and the
    /// other side may inflate it. Nothing may be added after it.
    pub fn compress(&mut self) {
        if self.payload().len() > MAX_INFLATED {
            return;
        }
        // What is sent in parts is not: no part says that the others are compressed with it.
        if let Some(smaller) = deflate(self.payload()).filter(|it| it.len() <= MAX_PAYLOAD) {
            // What is cut off would stay in the buffer, unseen.
            self.out[self.start + HEADER_LEN..].fill(0);
            self.out.truncate(self.start + HEADER_LEN);
            self.out.extend_from_slice(&smaller);
            self.header.flags = self.header.flags | Flags::COMP;
        }
    }

    /// Writes the header.
    ///
    /// # Errors
    /// The frame is larger than [`MAX_FRAME`]; the buffer is as it was before.
    pub fn finish(mut self) -> Result<(), TooLarge> {
        let header = self.header.sized(0, self.payload().len())?;
        self.out[self.start..self.start + HEADER_LEN].copy_from_slice(&header.to_bytes());
        self.is_finished = true;
        Ok(())
    }

    /// Writes it as an answer in parts instead, where it is. How many parts it has.
    pub fn finish_in_parts(mut self) -> usize {
        let whole = self.header;
        let (begin, part) = (self.start, self.start + HEADER_LEN);
        self.is_finished = true;
        let out = &mut *self.out;
        // For all of it at once: to grow is to copy.
        out.reserve((out.len() - part).div_ceil(CHUNK) * HEADER_LEN + HEADER_LEN);
        let count = spread(out, part, Header { flags: Flags::EVENT, code: 0, ..whole });
        let edge = |flag| Header { flags: whole.flags | flag, len: HEADER_LEN as u32, ..whole };
        out[begin..part].copy_from_slice(&edge(Flags::START).to_bytes());
        out.extend_from_slice(&edge(Flags::END).to_bytes());
        count
    }
}

/// Makes everything behind `start` payload of frames with this header, as large as parts may be:
/// each is moved back to make room for headers. How many they are.
pub fn spread(out: &mut Vec<u8>, start: usize, header: Header) -> usize {
    let len = out.len() - start;
    let count = len.div_ceil(CHUNK);
    out.resize(out.len() + count * HEADER_LEN, 0);
    // The last one first, so that none is written over.
    for place in (0..count).rev() {
        let from = start + place * CHUNK;
        let chunk = CHUNK.min(len - place * CHUNK);
        let to = from + (place + 1) * HEADER_LEN;
        out.copy_within(from..from + chunk, to);
        let header = Header { len: (HEADER_LEN + chunk) as u32, cap_len: 0, ..header };
        out[to - HEADER_LEN..to].copy_from_slice(&header.to_bytes());
    }
    count
}

impl fmt::Debug for Begun<'_> {
    /// Not what is written: other frames may be before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // What is cut off would stay in the buffer, unseen.
            self.out[self.start..].fill(0);
            self.out.truncate(self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oap::{APP_JSON, Decoder};

    #[test]
    fn a_frame_is_written_around_its_payload_as_it_is_in_one_piece() {
        let header = Header { code: 200, ..Header::new(Flags::RESP, APP_JSON, 5) };
        let mut out = b"before".to_vec();
        let mut begun = Begun::new(&mut out, header);
        begun.buffer().extend_from_slice(b"{}");
        assert_eq!(begun.payload(), b"{}");
        begun.finish().unwrap();
        let mut whole = BytesMut::from(&b"before"[..]);
        Frame::new(header, Bytes::from_static(b"{}")).encode(&mut whole).unwrap();
        assert_eq!(out, whole);
    }

    #[test]
    fn a_frame_that_is_not_finished_leaves_nothing() {
        let header = Header::new(Flags::RESP, APP_JSON, 5);
        let mut out = b"before".to_vec();
        for len in [MAX_PAYLOAD, MAX_PAYLOAD + 1] {
            let mut begun = Begun::new(&mut out, header);
            begun.buffer().resize(6 + HEADER_LEN + len, 7);
            let finished = begun.finish();
            assert_eq!(finished.is_ok(), len == MAX_PAYLOAD);
            assert_eq!(out.len(), if finished.is_ok() { 6 + MAX_FRAME } else { 6 });
            out.truncate(6);
        }
        drop(Begun::new(&mut out, header));
        assert_eq!(out, b"before");
    }

    #[test]
    fn what_is_too_large_becomes_parts_where_it_is() {
        let header = Header { code: 200, tenant: 3, ..Header::new(Flags::RESP, APP_JSON, 5) };
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17] {
            let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let mut out = b"before".to_vec();
            let mut begun = Begun::new(&mut out, header);
            begun.buffer().extend_from_slice(&payload);
            let count = begun.finish_in_parts();
            let mut frames = Vec::new();
            let (mut bytes, mut decoder) = (BytesMut::from(&out[6..]), Decoder::default());
            while let Some(frame) = decoder.decode(&mut bytes).unwrap() {
                assert_eq!((frame.tenant, frame.app, frame.corr_id), (3, APP_JSON, 5));
                frames.push(frame);
            }
            assert!(bytes.is_empty() && out.starts_with(b"before"));
            let (begin, end) = (frames.remove(0), frames.pop().unwrap());
            assert_eq!((begin.flags, begin.code), (Flags::RESP | Flags::START, 200));
            assert_eq!((end.flags, end.code), (Flags::RESP | Flags::END, 200));
            assert!(begin.payload.is_empty() && end.payload.is_empty());
            assert_eq!(frames.len(), count);
            for part in &frames {
                assert_eq!((part.flags, part.code), (Flags::EVENT, 0));
                assert!(part.payload.len() <= CHUNK);
            }
            let joined: Vec<u8> = frames.iter().flat_map(|part| part.payload.to_vec()).collect();
            assert_eq!(joined, payload, "{len}");
        }
    }

    #[test]
    fn a_frame_is_compressed_only_if_that_helps() {
        let header = Header::new(Flags::RESP, APP_JSON, 5);
        for (payload, helps) in [(&b"x".repeat(5000)[..], true), (b"short", false)] {
            let mut out = Vec::new();
            let mut begun = Begun::new(&mut out, header);
            begun.buffer().extend_from_slice(payload);
            begun.compress();
            begun.finish().unwrap();
            assert_eq!(out.len() < HEADER_LEN + payload.len(), helps);
            let mut bytes = BytesMut::from(&out[..]);
            let frame = Decoder::default().decode(&mut bytes).unwrap().unwrap();
            assert_eq!(frame.flags.contains(Flags::COMP), helps);
            assert_eq!(frame.plain_payload().unwrap(), payload);
        }
    }

    #[test]
    fn what_no_frame_can_say_compressed_stays_as_it_is() {
        // Digits of a hash: half as large when compressed.
        let digits = |n: u64| blake3::hash(&n.to_be_bytes()).to_hex().to_string();
        let larger_than_a_frame: String = (0..3 * MAX_FRAME as u64 / 64).map(digits).collect();
        // Nothing comes twice in the first part, or it would be compressed so well that nobody
        // inflates it.
        let often = larger_than_a_frame[..MAX_INFLATED / 64].repeat(64);
        let larger_than_may_be_inflated = format!("{often}x");
        let too_well = "x".repeat(MAX_INFLATED);
        for (plain, helps) in [
            (&larger_than_a_frame[..], false),
            (&larger_than_may_be_inflated, false),
            (&larger_than_may_be_inflated[1..], true),
            (&too_well, false),
        ] {
            let mut out = Vec::new();
            let mut begun = Begun::new(&mut out, Header::new(Flags::RESP, APP_JSON, 5));
            begun.buffer().extend_from_slice(plain.as_bytes());
            begun.compress();
            assert_eq!(begun.header.flags.contains(Flags::COMP), helps);
            assert_eq!(begun.payload() == plain.as_bytes(), !helps);
        }
    }

    #[test]
    fn what_is_in_a_frame_is_never_shown() {
        let payload = Bytes::from_static(b"somebody's message");
        let cap = Bytes::from_static(b"a capability");
        let frame = Frame { cap, ..Frame::new(Header::default(), payload) };
        let shown = format!("{frame:?}");
        assert!(!shown.contains("somebody") && !shown.contains("a capability"), "{shown}");
        assert!(shown.contains("payload_len: 18"), "{shown}");
    }

    #[test]
    fn a_payload_that_does_not_inflate_is_the_fault_of_its_request() {
        let header = Header::new(Flags::REQ | Flags::COMP, APP_JSON, 77);
        let frame = Frame::new(header, Bytes::from_static(b"no zstd"));
        let malformed = frame.plain_payload().unwrap_err();
        assert_eq!((malformed.code(), malformed.corr_id(), malformed.closes()), (400, 77, false));
    }
}

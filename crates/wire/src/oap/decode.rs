//! Frames out of a stream of bytes that come in whatever pieces. Invariant: a header is checked as
//! soon as it is there, so what it announces is waited for only if it may come; and room is made
//! for one frame at most.

use bytes::BytesMut;

use super::malformed::Malformed;
use super::{CHUNK, Frame, HEADER_LEN, Header};

/// Reads one side of a connection.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Nobody knows where the next frame would begin after one that was wrong.
    broken: Option<Malformed>,
}

impl Decoder {
    /// The next frame, taken out of the buffer without copying it; nothing if it is not all there.
    /// Then there is room for more of it, for all of it once a good part has come.
    ///
    /// # Errors
    /// What is wrong with the next header, now and from now on: nothing that follows can be read.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, Malformed> {
        if let Some(malformed) = self.broken {
            return Err(malformed);
        }
        let header =
            Header::read(buffer).inspect_err(|malformed| self.broken = Some(*malformed))?;
        let Some(header) = header else { return Ok(None) };
        let len = header.len as usize;
        if buffer.len() < len {
            make_room(buffer, len);
            return Ok(None);
        }
        let mut payload = buffer.split_to(len).freeze();
        let cap = payload.slice(HEADER_LEN..).split_to(usize::from(header.cap_len));
        let payload = payload.split_off(HEADER_LEN + cap.len());
        Ok(Some(Frame { cap, ..Frame::new(header, payload) }))
    }

    /// How many bytes have to come, at least, before there is anything to decode; 0 if there is
    /// something, be it an error.
    #[must_use]
    pub fn wanted(&self, buffer: &[u8]) -> usize {
        if self.broken.is_some() {
            return 0;
        }
        let have = buffer.len();
        match Header::read(buffer) {
            Err(_) => 0,
            Ok(Some(header)) => (header.len as usize).saturating_sub(have),
            Ok(None) => {
                let len = buffer.first_chunk().map(|len| u32::from_be_bytes(*len) as usize);
                len.map_or(4, |len| len.min(HEADER_LEN)).saturating_sub(have)
            }
        }
    }
}

/// Makes room for a frame, in two steps: whoever wants all of it has to send some of it first.
fn make_room(buffer: &mut BytesMut, len: usize) {
    let room = if buffer.len() < CHUNK { len.min(CHUNK) } else { len };
    if buffer.capacity() < room {
        // Not by growing, which doubles.
        let mut roomy = BytesMut::with_capacity(room);
        roomy.extend_from_slice(buffer);
        *buffer = roomy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oap::{APP_JSON, Flags, MAX_FRAME, MAX_PAYLOAD};

    #[test]
    fn room_is_made_for_one_frame_and_not_before_some_of_it_has_come() {
        let header = Header::new(Flags::REQ, APP_JSON, 1).sized(0, MAX_PAYLOAD).unwrap();
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::from(&header.to_bytes()[..]);
        assert_eq!(decoder.decode(&mut buffer), Ok(None));
        assert!((CHUNK..=2 * CHUNK).contains(&buffer.capacity()), "{}", buffer.capacity());
        buffer.resize(CHUNK, 7);
        assert_eq!(decoder.decode(&mut buffer), Ok(None));
        assert_eq!(buffer.capacity(), MAX_FRAME);
        let place = buffer.as_ptr();
        buffer.resize(MAX_FRAME, 7);
        let frame = decoder.decode(&mut buffer).unwrap().unwrap();
        assert_eq!(frame.payload.len(), MAX_PAYLOAD);
        assert_eq!(frame.payload.as_ptr(), place.wrapping_add(HEADER_LEN), "it was not copied");
        assert!(buffer.is_empty());
    }

    #[test]
    fn nothing_is_read_after_a_frame_that_was_wrong() {
        let mut good = Header::new(Flags::REQ, APP_JSON, 1).sized(0, 0).unwrap().to_bytes();
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::from(&good[..]);
        assert!(decoder.decode(&mut buffer).unwrap().is_some());
        good[6] = 1;
        let mut wrong = BytesMut::from(&good[..]);
        let malformed = decoder.decode(&mut wrong).unwrap_err();
        good[6] = 0;
        assert_eq!(decoder.decode(&mut BytesMut::from(&good[..])), Err(malformed));
        assert_eq!(decoder.wanted(&[]), 0);
    }
}

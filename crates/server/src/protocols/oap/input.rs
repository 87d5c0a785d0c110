//! What comes in on a connection. Invariant: of a frame that is not small nothing is kept before
//! it is known whose it is, and that there is room; and whoever sends slowly is cut off.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use mailbox_wire::capability::MAX_TEXT;
use mailbox_wire::oap::{Decoder, Frame, HEADER_LEN, Header, Malformed};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use crate::admission::Room;

/// Least and most that is read at a time.
const READ: (usize, usize) = (8 * 1024, 128 * 1024);
/// Frames that are no larger need no room of their own.
const SMALL: usize = 64 * 1024;
/// The same from one whose capability nobody has seen yet.
const SMALL_OF_STRANGERS: usize = 16 * 1024;
/// Slowest that a frame may come, in bytes per second, once the first wait is over.
const SLOWEST: u64 = 64 * 1024;

/// What has come, and was not taken.
#[derive(Default)]
pub(super) struct Input {
    buffer: BytesMut,
    decoder: Decoder,
    /// How much is read at a time.
    read: usize,
    /// So many bytes of a frame that was refused are still to come, and so many have come.
    skip: usize,
    skipped: usize,
    /// Room for the frame that is coming.
    room: Option<Room>,
    /// Since when it has been coming.
    since: Option<Instant>,
}

/// What is next.
pub(super) enum Next {
    /// A whole frame, and what it takes.
    Frame(Frame, Room),
    /// A large frame is coming: room has to be made for it, or it has to be skipped. With its
    /// capability, or as much of one that is too long as shows that it is.
    Large(Header, Vec<u8>),
    /// More has to come first.
    More,
}

impl Input {
    /// What is next, from one who is known or not.
    ///
    /// # Errors
    /// Nothing that follows can be read.
    pub(super) fn next(&mut self, is_known: bool) -> Result<Next, Malformed> {
        if self.skip > 0 {
            let skipped = self.skip.min(self.buffer.len());
            self.buffer.advance(skipped);
            self.skip -= skipped;
            self.skipped += skipped;
            if self.skip > 0 {
                return Ok(Next::More);
            }
            self.skipped = 0;
            self.since = None;
        }
        if self.room.is_none()
            && let Some(header) = Header::read(&self.buffer)?
            && header.len as usize > if is_known { SMALL } else { SMALL_OF_STRANGERS }
        {
            // Of a capability that is too long, enough to see that it is.
            let enough = usize::from(header.cap_len).min(MAX_TEXT + 1);
            let behind = HEADER_LEN + enough;
            return Ok(match self.buffer.get(HEADER_LEN..behind) {
                Some(capability) => Next::Large(header, capability.to_vec()),
                None => Next::More,
            });
        }
        let Some(frame) = self.decoder.decode(&mut self.buffer)? else { return Ok(Next::More) };
        self.since = None;
        let room = self.room.take();
        if room.is_some() {
            // The block it came in is larger than others need, and goes when the frame does.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(Next::Frame(frame, room.unwrap_or_default()))
    }

    /// There is room for the large frame that is coming.
    pub(super) fn keep(&mut self, room: Room) {
        self.room = Some(room);
    }

    /// There is none: it comes, and is forgotten.
    pub(super) fn skip(&mut self, header: &Header) {
        self.skip = header.len as usize;
        self.since = None;
    }

    /// Whether something has come that is not complete.
    pub(super) fn is_partial(&self) -> bool {
        !self.buffer.is_empty() || self.skip > 0
    }

    /// Reads what there is; how much it was.
    pub(super) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.read = self.read.clamp(READ.0, READ.1);
        let room = self.buffer.capacity() - self.buffer.len();
        // For a large frame there is exactly as much as was accounted for, and no more is needed.
        let is_made = self.room.is_some() && room > 0;
        if room < READ.0 && !is_made {
            self.buffer.reserve(self.read);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let count = ready!(poll_read_buf(Pin::new(stream), context, &mut self.buffer))?;
        // As much as there was room for: there may be more, and it is cheaper together.
        self.read = if count == room { READ.1 } else { self.read / 2 };
        Poll::Ready(Ok(count))
    }

    /// Gives back what is not needed while nothing comes; what was last asked is in it, too.
    pub(super) fn rest(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// Whether what is coming comes quickly enough, now that so much has come.
    pub(super) fn is_quick(&mut self, patience: Duration) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let come = (self.buffer.len() + self.skipped) as u64;
        let earned = Duration::from_millis(come * 1000 / SLOWEST);
        since.elapsed() <= patience + earned
    }
}

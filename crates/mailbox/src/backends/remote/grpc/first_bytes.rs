//! The first bytes that come on a connection. A service that has no place for another one says so
//! at once, in HTTP/1.1, whatever is spoken there: HTTP/2 can only say that it makes no sense.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::connect::Stream;

/// As many as it takes to see what is said: `HTTP/1.1 503`.
const COUNT: usize = 12;

/// What came first.
#[derive(Clone, Default)]
pub(super) struct FirstBytes(Arc<Mutex<Vec<u8>>>);

impl FirstBytes {
    /// Whether they say that there is no place, or nobody behind whoever says it.
    pub(super) fn are_busy(&self) -> bool {
        let bytes = self.0.lock();
        let codes: [&[u8]; 3] = [b" 502", b" 503", b" 504"];
        bytes.starts_with(b"HTTP/1.") && codes.iter().any(|code| bytes.ends_with(code))
    }

    fn add(&self, bytes: &[u8]) {
        let mut first = self.0.lock();
        let missing = COUNT - first.len();
        first.extend(bytes.iter().take(missing));
    }
}

/// A connection whose first bytes are kept.
pub(super) struct Listened {
    stream: Stream,
    first: FirstBytes,
}

impl Listened {
    pub(super) fn new(stream: Stream) -> (Self, FirstBytes) {
        let first = FirstBytes::default();
        (Self { stream, first: first.clone() }, first)
    }
}

impl AsyncRead for Listened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.first.add(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Listened {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

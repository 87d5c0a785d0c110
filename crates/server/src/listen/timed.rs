//! A connection that does not wait for ever. Invariant: whoever sends or takes nothing for longer
//! than allowed is cut off; whoever waits for an answer is not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::pace::Pace;
use super::peer::{Doing, Peer};
use crate::config::Timeouts;

/// A connection with timeouts.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    stream: S,
    peer: Arc<Peer>,
    timeouts: Timeouts,
    /// One timer that looks now and then: to set it anew for every request would cost more.
    look: Pin<Box<Sleep>>,
    /// How fast what is written is taken, since a write had to wait.
    stuck: Option<Pace>,
    write_look: Option<Pin<Box<Sleep>>>,
    /// Something has gone out since the last flush.
    has_written: bool,
}

impl<S> Timed<S> {
    pub(crate) fn new(stream: S, peer: Arc<Peer>, timeouts: Timeouts) -> Self {
        let look = Box::pin(tokio::time::sleep(every(&timeouts)));
        Self { stream, peer, timeouts, look, stuck: None, write_look: None, has_written: false }
    }

    /// Whether it has done nothing for too long.
    fn is_silent(&self) -> bool {
        match self.peer.doing() {
            Doing::Idle => !self.peer.is_busy() && self.peer.so_far() > self.timeouts.idle,
            Doing::Head => self.peer.so_far() > self.timeouts.read,
            Doing::Work | Doing::Answer => false,
        }
    }

    /// Where there can be several requests, one may be on its way when it has been idle for too
    /// long: its client is told first that it is too late, and asks elsewhere.
    fn is_to_leave(&self) -> bool {
        self.peer.doing() == Doing::Idle && self.peer.is_shared() && self.peer.let_leave()
    }

    fn poll_look(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.look.as_mut().poll(context).is_ready() {
            if let Err(error) = self.look_now() {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Pending
    }

    fn look_now(&mut self) -> io::Result<()> {
        let is_stuck = self.peer.untaken.look(Instant::now());
        if is_stuck || self.is_silent() && !self.is_to_leave() {
            return Err(self.cut());
        }
        let next = Instant::now() + every(&self.timeouts);
        self.look.as_mut().reset(next);
        Ok(())
    }

    /// A write that waits: has it waited for too long?
    fn poll_stuck(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let patience = self.timeouts.write;
        let pace = self.stuck.get_or_insert_with(|| Pace::new(Instant::now(), patience));
        let deadline = pace.deadline();
        let look =
            self.write_look.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if look.deadline() < deadline {
            look.as_mut().reset(deadline);
        }
        match look.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(self.cut()),
            Poll::Pending => Poll::Pending,
        }
    }

    /// It is cut off: the client may be there, and at work.
    fn cut(&self) -> io::Error {
        self.peer.cut.mark();
        io::ErrorKind::TimedOut.into()
    }

    fn note_written(&mut self, bytes: usize) {
        self.has_written |= bytes > 0;
        if let Some(pace) = &mut self.stuck {
            pace.taken(Instant::now(), bytes);
        }
    }
}

/// How often to look.
fn every(timeouts: &Timeouts) -> Duration {
    let shortest = timeouts.read.min(timeouts.write).min(timeouts.idle);
    (shortest / 2).max(Duration::from_millis(10))
}

impl<S> Drop for Timed<S> {
    fn drop(&mut self) {
        self.peer.gone();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                // Where there can be several requests, what comes need not be about one.
                let is_more = buffer.filled().len() > before && !self.peer.is_shared();
                if is_more && self.peer.doing() == Doing::Idle {
                    self.peer.set(Doing::Head);
                }
                // Whoever always says something is looked at all the same.
                if self.peer.is_shared() && Instant::now() >= self.look.deadline() {
                    self.look_now()?;
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_look(context),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(Ok(count)) => {
                self.note_written(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_stuck(context).map(Err),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(context, bytes) {
            Poll::Ready(Ok(count)) => {
                self.note_written(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_stuck(context).map(Err),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => {
                (self.stuck, self.write_look) = (None, None);
                // A flush comes when nothing is left to write: what was on its way is out.
                self.peer.written();
                let has_written = std::mem::take(&mut self.has_written);
                match self.peer.doing() {
                    Doing::Answer => self.peer.set(Doing::Idle),
                    // Also flushed whenever somebody looks: that alone is no sign of life.
                    Doing::Idle if has_written && !self.peer.is_shared() => self.peer.touch(),
                    Doing::Idle | Doing::Head | Doing::Work => {}
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_stuck(context).map(Err),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.poll_stuck(context).map(Err),
            done => done,
        }
    }
}

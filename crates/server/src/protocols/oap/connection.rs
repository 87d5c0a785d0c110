//! One connection, as one task: frames are read as they come, requests worked on side by side, and
//! answers written as they are there, together if several are. Invariants: while answers are not
//! taken nothing more is read; what does not reach the socket is given back.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::stream::FuturesUnordered;
use mailbox::ErrorKind;
use mailbox_wire::oap::Requests;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::input::Input;
use super::output::{Output, To};
use super::question::Tongue;
use super::run::Run;
use super::session::Session;
use super::work::Work;
use crate::admission::Room;
use crate::auth::Caller;
use crate::calls::Stream;
use crate::failure::Failure;
use crate::listen::{Doing, Peer, Timed};
use crate::service::Service;

/// While so much waits to be written, nothing is read, and streams wait.
pub(super) const HIGH: usize = 256 * 1024;
/// The same for one whose capability nobody has seen yet.
const HIGH_OF_STRANGERS: usize = 16 * 1024;
/// Slowest that a request in parts may come, in bytes per second, once the first wait is over.
const SLOWEST: u64 = 64 * 1024;
/// Most frames that are taken before other connections have their turn.
const TURN: usize = 256;
/// What is read and forgotten at the end of a connection, and for how long.
const LINGER: (usize, Duration) = (4 * 1024 * 1024, Duration::from_secs(1));

/// One connection. The output is first: what is in it is given back before streams are ended.
pub(super) struct Connection<S> {
    pub(super) output: Output,
    pub(super) stream: Timed<S>,
    pub(super) peer: Arc<Peer>,
    pub(super) service: Arc<Service>,
    pub(super) is_tls: bool,
    pub(super) input: Input,
    pub(super) requests: Requests,
    pub(super) session: Session,
    /// The request that comes in parts.
    pub(super) parts: Option<Parts>,
    /// Requests that have come and are alike, until the next is not.
    pub(super) run: Option<Run>,
    pub(super) at_work: FuturesUnordered<Work>,
    /// Bytes of requests at work that have no room of their own.
    pub(super) small: usize,
    /// Requests that can be cancelled.
    pub(super) stops: HashMap<u64, CancellationToken>,
    /// Those that wait until what they have cancelled is over, by what that is.
    pub(super) cancels: Vec<Cancel>,
    /// Streams whose client does not take what is there.
    pub(super) parked: Vec<Parked>,
    /// So many frames may be taken before others have their turn.
    pub(super) turn: usize,
    /// A whole frame has come: from here on it may take its time with the next.
    pub(super) has_heard: bool,
    /// Nothing more comes; what has come is still taken.
    pub(super) is_at_end: bool,
    /// Nothing more is taken.
    pub(super) is_closing: bool,
    /// The client was told that the service stops.
    has_taken_leave: bool,
}

/// A request that ends another.
pub(super) struct Cancel {
    /// Which.
    pub(super) corr_id: u64,
    pub(super) to: To,
    pub(super) tongue: Tongue,
}

pub(super) struct Parked {
    pub(super) stream: Box<Stream>,
    pub(super) to: To,
    pub(super) tongue: Tongue,
    pub(super) caller: Caller,
}

/// A request that comes in parts.
pub(super) struct Parts {
    pub(super) corr_id: u64,
    pub(super) bytes: BytesMut,
    pub(super) room: Room,
    /// Why it is refused as soon as all of it has come: nothing of it is kept.
    pub(super) refused: Option<Failure>,
    since: Instant,
    /// Since when it comes too slowly, through no fault of this side.
    slow_since: Option<Instant>,
    len: u64,
}

impl Parts {
    pub(super) fn new(corr_id: u64) -> Self {
        Self {
            corr_id,
            bytes: BytesMut::new(),
            room: Room::default(),
            refused: None,
            since: Instant::now(),
            slow_since: None,
            len: 0,
        }
    }

    /// So much more has come, kept or not.
    pub(super) fn note(&mut self, len: usize) {
        self.len += len as u64;
    }

    fn is_quick(&self, patience: Duration) -> bool {
        let earned = Duration::from_millis(self.len * 1000 / SLOWEST);
        self.since.elapsed() <= patience + earned
    }

    /// Whether it says too little, and has for too long. Who always has something ready is never
    /// found to wait, where it is looked who is silent.
    fn has_trickled(&mut self, patience: Duration) -> bool {
        if self.is_quick(patience) {
            self.slow_since = None;
            return false;
        }
        self.slow_since.get_or_insert_with(Instant::now).elapsed() > patience
    }
}

/// What one hears whose connection is closed because nothing was asked on it.
fn idle() -> Failure {
    let message = "nothing was asked on this connection for too long";
    Failure { reason: Some("idle"), ..Failure::new(ErrorKind::Connection, message) }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(
        stream: Timed<S>,
        peer: Arc<Peer>,
        service: &Arc<Service>,
        is_tls: bool,
    ) -> Self {
        Self {
            output: Output::default(),
            stream,
            peer,
            service: Arc::clone(service),
            is_tls,
            input: Input::default(),
            requests: Requests::default(),
            session: Session::new(),
            parts: None,
            run: None,
            cancels: Vec::new(),
            at_work: FuturesUnordered::new(),
            small: 0,
            stops: HashMap::new(),
            parked: Vec::new(),
            turn: 0,
            has_heard: false,
            is_at_end: false,
            is_closing: false,
            has_taken_leave: false,
        }
    }

    /// Goes on until the connection is over.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.turn = TURN;
        let mut has_made_way = false;
        loop {
            // Those who wait are sent away by the service itself; what has come is answered.
            self.is_at_end |= self.service.is_stopping();
            // What came before goes first: it may have waited for a place that is free now.
            let mut has_moved = self.collect(context);
            has_moved |= self.take_frames(context);
            let was_high = self.output.len() >= self.high();
            match self.poll_write(context) {
                Poll::Ready(Ok(())) => has_moved |= self.resume(),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            if self.is_over() {
                if self.take_leave() {
                    continue;
                }
                return Poll::Ready(());
            }
            if self.turn == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            // What has come and could not be taken can be taken now: before anything more comes,
            // or it is known that nothing does.
            if was_high && !has_made_way && self.output.len() < self.high() {
                // Once: streams that always have something more are not to keep others unheard.
                has_made_way = true;
                continue;
            }
            // Nor is anything else going to wake this for what was taken in between.
            has_moved |= was_high && self.output.len() < self.high();
            if !self.is_at_end && !self.is_closing && self.output.len() < self.high() {
                match self.poll_read(context) {
                    Poll::Ready(Ok(())) => continue,
                    // A request may be on its way: its client learns that nobody looks at it.
                    Poll::Ready(Err(_)) if self.is_idle() => {
                        self.output.failure(To::nobody(), &idle(), &self.session.corr_id(0));
                        self.has_taken_leave = true;
                        self.is_closing = true;
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => {}
                }
            }
            if !has_moved {
                self.note_doing();
                return Poll::Pending;
            }
        }
    }

    /// Nothing is asked, and whatever was is answered.
    fn is_idle(&self) -> bool {
        let is_answered = self.at_work.is_empty() && self.parked.is_empty() && self.output.is_out();
        is_answered && self.peer.cut.is_marked() && self.peer.doing() == Doing::Idle
    }

    /// Everything is answered, and nothing more will be asked.
    fn is_over(&self) -> bool {
        let is_ending = self.is_closing || self.requests.has_ended();
        let is_idle = self.at_work.is_empty() && self.parked.is_empty();
        is_ending && is_idle && self.output.is_out()
    }

    /// Says that it is the service that leaves, once everything that was taken is answered: what is
    /// not answered was not looked at, and can be asked elsewhere. Whether there was reason to.
    fn take_leave(&mut self) -> bool {
        if self.has_taken_leave || self.requests.has_ended() {
            return false;
        }
        let Err(stopping) = self.service.check_open() else { return false };
        self.has_taken_leave = true;
        self.output.failure(To::nobody(), &stopping, &self.session.corr_id(0));
        true
    }

    /// While so much waits to be written, nothing is read: less for one whom nobody knows.
    pub(super) fn high(&self) -> usize {
        if self.session.is_known() { HIGH } else { HIGH_OF_STRANGERS }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let was_partial = self.input.is_partial();
        match ready!(self.input.poll_read(&mut self.stream, context)) {
            Ok(0) => {
                self.is_at_end = true;
                Poll::Ready(Ok(()))
            }
            Ok(_) => {
                let patience = self.service.settings().timeouts.read;
                let is_quick = match &self.parts {
                    Some(parts) => parts.is_quick(patience),
                    None => was_partial && self.input.is_quick(patience),
                };
                if is_quick {
                    self.peer.touch();
                }
                if self.parts.as_mut().is_some_and(|parts| parts.has_trickled(patience)) {
                    self.peer.cut.mark();
                    return Poll::Ready(Err(()));
                }
                Poll::Ready(Ok(()))
            }
            Err(_) => Poll::Ready(Err(())),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.output.len() > 0 {
            self.count_frames();
        }
        self.output.poll_write(&mut self.stream, context, self.is_tls)
    }

    fn count_frames(&mut self) {
        let (answers, parts) = self.output.counted();
        let frames = self.service.metrics.frames();
        frames.response.inc_by(answers);
        if parts > 0 {
            frames.event.inc_by(parts);
        }
    }

    /// What the connection is doing, for those who look whether it does anything.
    fn note_doing(&mut self) {
        // Whoever has begun to say something has to go on, also while something else is waited for.
        let is_speaking = !self.has_heard || self.input.is_partial() || self.parts.is_some();
        let doing = if is_speaking && self.output.len() < self.high() {
            Doing::Head
        } else if !self.at_work.is_empty() || !self.parked.is_empty() {
            Doing::Work
        } else if !self.output.is_out() {
            Doing::Answer
        } else {
            Doing::Idle
        };
        if let Some(parts) = self.parts.as_mut().filter(|_| doing != Doing::Head) {
            // It is not its client who keeps it waiting.
            parts.slow_since = None;
        }
        // There may be many that wait, and each for long.
        self.input.rest();
        self.output.rest();
        if self.peer.doing() != doing {
            self.peer.set(doing);
        }
    }

    /// All that has come is taken, and nothing more comes.
    pub(super) fn nothing_more(&mut self) {
        if self.service.is_stopping() {
            // It is the service that leaves: what is received goes on for those who have it.
            self.is_closing = true;
        } else {
            // It asks nothing any more, and waits for nothing; answers may still be wanted.
            self.close();
        }
    }

    /// Nothing more is read; those who wait are sent away.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
        self.stops.values().for_each(CancellationToken::cancel);
    }

    /// Says that nothing more comes, and forgets what the client still says.
    pub(super) async fn linger(mut self) {
        let forget = async {
            // Before streams end: what has not gone out was never delivered.
            self.output.gone();
            self.at_work.clear();
            self.parked.clear();
            if self.stream.shutdown().await.is_err() {
                return;
            }
            let mut read = 0;
            while read < LINGER.0 {
                let mut input = Input::default();
                match poll_fn(|context| input.poll_read(&mut self.stream, context)).await {
                    Ok(count) if count > 0 => read += count,
                    _ => break,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER.1, forget).await;
    }
}

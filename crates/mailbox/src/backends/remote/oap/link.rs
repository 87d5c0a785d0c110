//! One connection: how it comes about, what is asked on it, and how it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mailbox_wire::oap::{
    APP_HELLO, Flags, Frame, HEADER_LEN, Header, Hello, HelloAnswer, MAX_INFLIGHT,
};
use mailbox_wire::proto::{Asked, write_request};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::connect::{Stream, foreign};
use super::super::door::{Failed, Outcome};
use super::super::places::{Place, Places};
use super::super::pool::{self, Linked};
use super::super::target::Target;
use super::answered::not_understood;
use super::asking::{Asking, Held};
use super::flight::{Flight, Streaming, To};
use super::{reading, writing};
use crate::error::{Error, ErrorKind};

/// How long a service may take to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to say why it does not read any more.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Most that stands in line to be written, in units.
const ROOM: usize = 4096;
/// What room is counted in.
const UNIT: usize = 1024;
/// Least that a frame has room for beside its header: with less, headers would be most of what
/// goes out.
const LEAST_FRAME: usize = 4096;
/// Pieces of a stream that were read and not taken.
const PIECES: usize = 4;

/// Where connections lead to, and what allows it.
pub(super) struct Opener {
    pub(super) target: Target,
    /// Empty if there is none.
    pub(super) capability: RwLock<Bytes>,
}

/// A connection. It is closed when this is dropped.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
}

/// What a connection's tasks share with those who ask.
pub(super) struct Shared {
    pub(super) flight: Mutex<Flight>,
    /// Something is in line to be written.
    pub(super) filled: Notify,
    /// Room for what is in line to be written.
    pub(super) room: Semaphore,
    /// Nobody needs it any more, or it has ended.
    pub(super) closed: CancellationToken,
    pub(super) is_tls: bool,
    pub(super) places: Places,
    /// When something last came, as its places count.
    heard: AtomicU64,
}

impl pool::Opener for Opener {
    type Link = Link;

    /// Connects, and says hello.
    async fn open(&self) -> Result<Link, Failed> {
        let stream = Stream::open(&self.target).await.map_err(Failed::void)?;
        let shared = Arc::new(Shared::new(self.target.tls.is_some()));
        tokio::spawn(run(Ending(Arc::clone(&shared)), stream));
        // If this is given up, so is the connection.
        let link = Link { shared };
        let answer = timeout(HELLO_WITHIN, self.hello(&link)).await.unwrap_or_else(|_| {
            let message = format!("the service at {} does not say hello", self.target.base());
            Err(Failed::void(Error::new(ErrorKind::Connection, message)))
        });
        // Whatever came of it, nothing was asked for yet.
        let answer = answer.map_err(|failed| Failed::void(no_hello(failed)))?;
        let most = (answer.max_frame as usize).saturating_sub(HEADER_LEN);
        if most < LEAST_FRAME {
            return Err(Failed::void(not_understood()));
        }
        link.shared.flight.lock().set_most(most);
        link.shared.places.allow((answer.max_inflight as usize).clamp(1, MAX_INFLIGHT));
        Ok(link)
    }
}

impl Opener {
    async fn hello(&self, link: &Link) -> Result<HelloAnswer, Failed> {
        let hello = Hello { ua: concat!("mailbox/", env!("CARGO_PKG_VERSION")).to_owned() };
        let payload = serde_json::to_vec(&hello).unwrap_or_default().into();
        let header = Header::new(Flags::REQ | Flags::START, APP_HELLO, 0);
        let frame = Frame { cap: self.capability.read().clone(), ..Frame::new(header, payload) };
        let (to, answer) = oneshot::channel();
        link.shared.flight.lock().put_hello(frame, To::One(to))?;
        link.shared.filled.notify_one();
        let answered = answer.await.map_err(|_| cut_short())??;
        serde_json::from_slice(&answered.payload()?)
            .map_err(|error| Failed::void(not_understood().with_source(error)))
    }
}

/// Why a service did not say hello.
fn no_hello(Failed { error, outcome, .. }: Failed) -> Error {
    match error.kind() {
        // It is not the service that says so.
        ErrorKind::Internal if outcome != Outcome::Refused => foreign("OAP/1").with_source(error),
        _ => error,
    }
}

/// Ends a connection for everybody who is on it, however its task ends: with the runtime, for
/// example.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.closed.cancel();
        self.0.flight.lock().cut(cut_short().error);
        self.0.room.close();
    }
}

/// Reads and writes until the connection ends.
async fn run(ending: Ending, stream: Stream) {
    let shared = &ending.0;
    let (reader, writer) = stream.halves();
    let for_writer = Arc::clone(shared);
    let mut writer = tokio::spawn(async move { writing::write(&for_writer, writer).await });
    let mut written = None;
    let why = {
        let mut reader = std::pin::pin!(reading::read(shared, reader));
        tokio::select! {
            biased;
            why = &mut reader => why,
            () = shared.closed.cancelled() => {
                Error::new(ErrorKind::Connection, "the connection to the service was closed")
            }
            ended = &mut writer => {
                written = Some(ended);
                // It does not read any more: it may have said why.
                timeout(LAST_WORDS, reader).await.unwrap_or_else(|_| {
                    let message = "the service does not take requests any more";
                    Error::new(ErrorKind::Connection, message)
                })
            }
        }
    };
    shared.closed.cancel();
    let written = match written {
        Some(ended) => ended,
        None => writer.await,
    };
    shared.end(written, why);
}

impl Shared {
    pub(super) fn new(is_tls: bool) -> Self {
        let closed = CancellationToken::new();
        Self {
            flight: Mutex::new(Flight::new()),
            filled: Notify::new(),
            room: Semaphore::new(ROOM),
            places: Places::new(closed.clone()),
            closed,
            is_tls,
            heard: AtomicU64::new(0),
        }
    }

    /// The connection is over, and so is its writer.
    pub(super) fn end<T>(&self, written: Result<T, JoinError>, why: Error) {
        match written {
            // It has noted what went out.
            Ok(_) => self.flight.lock().end(why),
            // What it had taken may have gone out.
            Err(_) => self.flight.lock().cut(why),
        }
    }

    /// Something came.
    pub(super) fn heard(&self) {
        self.heard.store(self.places.now(), Ordering::Relaxed);
        self.places.touch();
    }

    /// Whether something came after this time.
    pub(super) fn was_heard_after(&self, time: u64) -> bool {
        self.heard.load(Ordering::Relaxed) > time
    }
}

impl Linked for Link {
    fn places(&self) -> &Places {
        &self.shared.places
    }
}

impl Link {
    /// Puts a request in line.
    pub(super) async fn ask(
        self: &Arc<Self>,
        asked: Asked,
        place: Place,
    ) -> Result<Asking, Failed> {
        let receive = Held::by(&asked);
        let (to, answer) = oneshot::channel();
        let id = self.put(asked, To::One(to), place).await?;
        Ok(Asking::new(self, id, answer, receive))
    }

    /// The same for an answer that goes on.
    pub(super) async fn ask_stream(
        &self,
        asked: Asked,
        place: Place,
    ) -> Result<mpsc::Receiver<Streaming>, Failed> {
        let (to, pieces) = mpsc::channel(PIECES);
        self.put(asked, To::Stream(to), place).await?;
        Ok(pieces)
    }

    async fn put(&self, asked: Asked, to: To, place: Place) -> Result<u64, Failed> {
        let payload = write_request(asked);
        let framed_len = self.shared.flight.lock().framed_len(payload.len());
        let room = framed_len.div_ceil(UNIT).clamp(1, ROOM);
        // In turn, so that a large one is not overtaken for ever.
        let permit = self.shared.room.acquire_many(u32::try_from(room).unwrap_or(u32::MAX)).await;
        let Ok(permit) = permit else { return Err(self.over()) };
        let id = self.shared.flight.lock().put(&payload, room, to, Some(place))?;
        // Whoever writes it makes room again.
        permit.forget();
        self.shared.places.touch();
        self.shared.filled.notify_one();
        Ok(id)
    }

    /// What is known of a request that never got in line.
    fn over(&self) -> Failed {
        self.shared.flight.lock().over().unwrap_or_else(cut_short)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.closed.cancel();
    }
}

pub(super) fn cut_short() -> Failed {
    Failed::void(Error::new(ErrorKind::Connection, "the connection to the service was cut short"))
}

//! Group commit for the peers, the same for all of them: producers put what they have into a list,
//! one thread takes everything that waits, commits it at once, and answers all of it.
//!
//! The list is bounded by its producers: each has at most one message in it.

use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::journal::load::Sink;

/// What a peer does with a batch.
pub(crate) trait Store: Send + 'static {
    /// Returns when all of it is on the disk.
    fn commit(&mut self, bodies: &[Bytes]);

    /// Removes everything, as if all of it had been received and acknowledged. Not measured.
    fn clear(&mut self);
}

/// A peer with its thread.
#[derive(Debug)]
pub(crate) struct Grouped {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bodies: Vec<Bytes>,
    answers: Vec<oneshot::Sender<()>>,
    clearing: Option<mpsc::Sender<()>>,
    is_closed: bool,
}

impl Waiting {
    fn is_idle(&self) -> bool {
        self.bodies.is_empty() && self.clearing.is_none() && !self.is_closed
    }
}

impl Grouped {
    /// Starts the thread.
    pub(crate) fn start(store: impl Store) -> Arc<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let writer = std::thread::spawn(move || write(&theirs, store));
        Arc::new(Self { shared, writer: Some(writer) })
    }

    /// Removes everything.
    pub(crate) fn clear(&self) {
        let (done, cleared) = mpsc::channel();
        self.with_waiting(|waiting| waiting.clearing = Some(done));
        cleared.recv().expect("the writer runs");
    }

    fn with_waiting(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.shared.waiting.lock().expect("nobody panics with it");
        let was_idle = waiting.is_idle();
        change(&mut waiting);
        drop(waiting);
        // Whoever was first has woken the writer already.
        if was_idle {
            self.shared.arrived.notify_one();
        }
    }
}

impl Sink for Grouped {
    async fn send(&self, body: Bytes) {
        let (answer, answered) = oneshot::channel();
        self.with_waiting(|waiting| {
            waiting.bodies.push(body);
            waiting.answers.push(answer);
        });
        answered.await.expect("the writer runs");
    }
}

impl Drop for Grouped {
    fn drop(&mut self) {
        self.with_waiting(|waiting| waiting.is_closed = true);
        if let Some(writer) = self.writer.take() {
            // A panic there has failed the producers already.
            writer.join().ok();
        }
    }
}

fn write(shared: &Shared, mut store: impl Store) {
    // Swapped with the empty ones of the last batch, so that nothing is allocated in the long run.
    let (mut bodies, mut answers) = (Vec::new(), Vec::new());
    loop {
        let waiting = shared.waiting.lock().expect("nobody panics with it");
        let mut waiting = shared
            .arrived
            .wait_while(waiting, |waiting| waiting.is_idle())
            .expect("nobody panics with it");
        std::mem::swap(&mut waiting.bodies, &mut bodies);
        std::mem::swap(&mut waiting.answers, &mut answers);
        let (clearing, is_closed) = (waiting.clearing.take(), waiting.is_closed);
        drop(waiting);
        if !bodies.is_empty() {
            store.commit(&bodies);
            bodies.clear();
            // Whoever has stopped waiting needs no answer.
            for answer in answers.drain(..) {
                answer.send(()).ok();
            }
        }
        if let Some(done) = clearing {
            store.clear();
            done.send(()).ok();
        }
        if is_closed {
            return;
        }
    }
}

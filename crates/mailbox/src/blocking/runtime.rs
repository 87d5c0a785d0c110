//! Waiting for a future on a plain thread.
//!
//! The future is polled by the calling thread; the process-wide runtime only keeps the time (and
//! watches sockets, where a backend has some). Not `Handle::block_on`: that panics inside a task,
//! and here nothing does.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::coop;

use crate::error::{Error, ErrorKind, Result};

/// The result of `future`, after however long it takes.
///
/// # Errors
/// `Unsupported` inside a task; `Internal` if the runtime cannot be started; what `future` gives.
pub(super) fn wait<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if in_a_task() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "a blocking mailbox was called in an async task, whose thread must not be blocked: \
             use the async mailbox (`as_async`), or call it inside `tokio::task::spawn_blocking`",
        ));
    }
    let handle = handle()?;
    let _entered = handle.enter();
    let mut future = pin!(future);
    let parked = Arc::new(Parked { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        // A thread can be unparked for other reasons, or by a token left over from before.
        while !parked.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The runtime of the process, started at first use. A start that fails is tried again next time.
fn handle() -> Result<Handle> {
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock();
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    let started = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("mailbox-blocking")
        .enable_all()
        .build()
        .map_err(|error| {
            let message = "the runtime of the blocking mailboxes cannot be started";
            Error::new(ErrorKind::Internal, message).with_source(error)
        })?;
    Ok(runtime.insert(started).handle().clone())
}

/// Whether this thread is polling a tokio task. Tokio tells by panicking only, but it gives every
/// task that it polls a budget (a number of at most 8 bits), and takes it away where blocking is
/// allowed: on plain threads, in `spawn_blocking` and in `block_in_place`.
fn in_a_task() -> bool {
    const MORE_THAN_ANY_BUDGET: usize = 256;
    if Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    // Gives the budget back, as it was, when dropped.
    let Poll::Ready(_as_it_was) = coop::poll_proceed(&mut context) else {
        return true;
    };
    (0..MORE_THAN_ANY_BUDGET).any(|_| match coop::poll_proceed(&mut context) {
        Poll::Ready(spent) => {
            spent.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

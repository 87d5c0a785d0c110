//! What a backend has on one runtime, beside connections: what waits to go out together, and what
//! the next call there has to wait for.

use std::collections::BTreeSet;
use std::sync::Arc;

use mailbox_wire::json::{BatchMessage, SettleItem};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::gather::Gathering;
use super::runtimes;

#[derive(Default)]
pub(super) struct Local {
    pub(super) sends: Gathering<BatchMessage>,
    pub(super) settlements: Gathering<SettleItem>,
    going_on: Mutex<GoingOn>,
    /// Something of that is over.
    over: Notify,
}

/// What goes on although nobody waits for its answer. As much as there are receives.
#[derive(Default)]
struct GoingOn {
    /// Receives that somebody may wait for.
    receives: usize,
    next: u64,
    /// Receives that were dropped and are not over yet, and what is settled for nobody, by number.
    leaving: BTreeSet<u64>,
}

/// Something goes on that calls which begin now have to wait for.
pub(super) struct Leaving {
    local: Arc<Local>,
    number: u64,
}

/// A receive goes on.
pub(super) struct Receiving(Arc<Local>);

impl Local {
    pub(super) fn receiving(self: &Arc<Self>) -> Receiving {
        self.going_on.lock().receives += 1;
        Receiving(Arc::clone(self))
    }

    pub(super) fn leaving(self: &Arc<Self>) -> Leaving {
        let mut going_on = self.going_on.lock();
        let number = going_on.next;
        going_on.next += 1;
        going_on.leaving.insert(number);
        Leaving { local: Arc::clone(self), number }
    }

    /// Waits until receives that were dropped before this are over. Where some are always dropped,
    /// nobody waits for those who come later.
    pub(super) async fn all_left(&self) {
        let next = self.going_on.lock().next;
        self.wait(|going_on| going_on.leaving.first().is_none_or(|first| *first >= next)).await;
    }

    /// Waits until no receive goes on, dropped or not.
    pub(super) async fn all_over(&self) {
        self.wait(|going_on| going_on.receives == 0 && going_on.leaving.is_empty()).await;
    }

    async fn wait(&self, is_so: impl Fn(&GoingOn) -> bool) {
        loop {
            let over = self.over.notified();
            if is_so(&self.going_on.lock()) {
                return;
            }
            over.await;
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.local.going_on.lock().leaving.remove(&self.number);
        self.local.over.notify_waiters();
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.going_on.lock().receives -= 1;
        self.0.over.notify_waiters();
    }
}

impl runtimes::Local for Local {
    fn is_idle(&self) -> bool {
        let going_on = self.going_on.lock();
        let is_quiet = going_on.receives == 0 && going_on.leaving.is_empty();
        is_quiet && self.sends.is_empty() && self.settlements.is_empty()
    }
}

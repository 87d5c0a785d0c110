//! What a backend has on one runtime, beside connections: what waits to go out together, and what
//! the next call there has to wait for.

use std::sync::atomic::{AtomicUsize, Ordering};

use mailbox_wire::json::{BatchMessage, SettleItem};
use tokio::sync::Notify;

use super::gather::Gathering;
use super::runtimes;

#[derive(Default)]
pub(super) struct Local {
    pub(super) sends: Gathering<BatchMessage>,
    pub(super) settlements: Gathering<SettleItem>,
    /// Receives that were dropped and are not over yet.
    pub(super) leaving: AtomicUsize,
    pub(super) left: Notify,
}

impl Local {
    /// Waits until receives that were dropped are over.
    pub(super) async fn all_left(&self) {
        loop {
            let left = self.left.notified();
            if self.leaving.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }
}

impl runtimes::Local for Local {
    fn is_idle(&self) -> bool {
        let is_leaving = self.leaving.load(Ordering::Acquire) > 0;
        !is_leaving && self.sends.is_empty() && self.settlements.is_empty()
    }
}

//! What a backend has on each runtime that it is used on. A connection, or a request that others
//! wait for, goes on only while somebody drives the runtime it was made on; one with a single
//! thread is driven by nobody between two calls. Invariant: no runtime has to wait for another.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

/// What there can be one of on each runtime.
pub(super) trait Local {
    /// Whether nothing is lost if it is made anew: its runtime may have ended.
    fn is_idle(&self) -> bool;
}

/// One for each runtime.
pub(super) struct PerRuntime<T>(Mutex<Vec<(Id, Arc<T>)>>);

impl<T> Default for PerRuntime<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Local> PerRuntime<T> {
    /// The one of the runtime that this is called on, which is made if there is none.
    pub(super) fn here(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let here = Handle::current().id();
        let mut all = self.0.lock();
        if let Some((_, it)) = all.iter().find(|(id, _)| *id == here) {
            return Arc::clone(it);
        }
        // So that there are never more than runtimes on which something goes on.
        all.retain(|(_, it)| Arc::strong_count(it) > 1 || !it.is_idle());
        let it = Arc::new(make());
        all.push((here, Arc::clone(&it)));
        it
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().map(|(_, it)| Arc::clone(it)).collect()
    }

    /// Forgets all of them. Whoever uses one goes on with it.
    #[cfg(any(feature = "grpc", feature = "oap"))]
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}

//! Those who ask without a capability: whether the service is well, and what it can be asked.
//! Invariant: what they can have at the same time is little, and cannot be used up in such a
//! way that nobody else hears whether the service is well.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mailbox::Result;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::full;
use crate::listen::Peer;

/// Calls of one connection that are open at a time.
const EACH: usize = 8;
/// Of those that take memory, of all connections together.
const LARGE: usize = 64;

/// What a call of a guest takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// A few words: how the service is. Whoever watches over it asks on a connection of its own,
    /// and gets an answer however many others ask.
    Little,
    /// Answers that are made for it, or many of them.
    Much,
}

/// Places for guests.
#[derive(Debug)]
pub(crate) struct Guests(Arc<Semaphore>);

impl Default for Guests {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE)))
    }
}

impl Guests {
    /// A place for a call on this connection.
    ///
    /// # Errors
    /// `Saturated` if there are too many.
    pub(crate) fn come(&self, peer: &Arc<Peer>, asks: Asks) -> Result<Arc<Guest>> {
        if peer.guests.fetch_add(1, Ordering::AcqRel) >= EACH {
            peer.guests.fetch_sub(1, Ordering::AcqRel);
            return Err(full("too many calls without a capability are open on this connection"));
        }
        // From here on it gives its place on the connection back.
        let mut guest = Guest { peer: Arc::clone(peer), _permit: None };
        if asks == Asks::Much {
            let permit = Arc::clone(&self.0).try_acquire_owned();
            let permit =
                permit.map_err(|_| full("too many calls without a capability are open"))?;
            guest._permit = Some(permit);
        }
        Ok(Arc::new(guest))
    }
}

/// A call is counted as long as this is there.
#[derive(Debug)]
pub(crate) struct Guest {
    peer: Arc<Peer>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.peer.guests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn guests_have_few_places_and_give_them_back() {
        let guests = Guests::default();
        let peer = |_| Arc::new(Peer::new(None, Duration::ZERO));
        let peers: Vec<_> = (0..LARGE / EACH + 1).map(peer).collect();
        let mut there = Vec::new();
        for peer in &peers[1..] {
            there.extend((0..EACH).map(|_| guests.come(peer, Asks::Much).unwrap()));
            assert!(guests.come(peer, Asks::Little).is_err(), "one connection has a few");
        }
        // All are taken; but how the service is can be asked.
        assert!(guests.come(&peers[0], Asks::Much).is_err());
        let little: Vec<_> =
            (0..EACH).map(|_| guests.come(&peers[0], Asks::Little).unwrap()).collect();
        assert!(guests.come(&peers[0], Asks::Little).is_err());
        drop((there, little));
        assert!(guests.come(&peers[0], Asks::Much).is_ok());
        assert!(peers.iter().all(|peer| peer.guests.load(Ordering::Acquire) == 0));
    }
}

//! Creations under way, so that those who ask for the same identifier at the same time share one.
//! Pure bookkeeping under the resolver's lock; invariant: a flight is in the map while somebody
//! waits for it and it has not landed.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;

/// Most creations under way at once. Each belongs to a call that waits, so this is a bound on
/// callers with different wishes, not a tuning knob.
const FLIGHTS: usize = 1 << 12;

/// What all who wait for one creation get. Whoever is polled first creates; if that one goes away,
/// the next one does.
pub(crate) type Flight<R> = Arc<OnceCell<Result<Mailbox<R>>>>;

pub(crate) struct Flights<R> {
    by_identifier: HashMap<Arc<str>, Boarded<R>>,
}

struct Boarded<R> {
    flight: Flight<R>,
    waiting: usize,
}

impl<R> Flights<R> {
    pub(crate) fn new() -> Self {
        Self { by_identifier: HashMap::new() }
    }

    /// Joins the creation for `identifier`, or starts one.
    pub(crate) fn board(&mut self, identifier: &Arc<str>) -> Result<Flight<R>> {
        if self.by_identifier.len() >= FLIGHTS && !self.by_identifier.contains_key(identifier) {
            let message = format!("{FLIGHTS} mailboxes are being made, the most at one time");
            return Err(Error::new(ErrorKind::Saturated, message));
        }
        let boarded = self
            .by_identifier
            .entry(Arc::clone(identifier))
            .or_insert_with(|| Boarded { flight: Arc::new(OnceCell::new()), waiting: 0 });
        boarded.waiting += 1;
        Ok(Arc::clone(&boarded.flight))
    }

    /// The creation is over: whoever comes now starts another.
    pub(crate) fn land(&mut self, identifier: &str, flight: &Flight<R>) {
        if self.is_under_way(identifier, flight) {
            self.by_identifier.remove(identifier);
        }
    }

    /// One who waited does so no longer, served or not.
    pub(crate) fn leave(&mut self, identifier: &str, flight: &Flight<R>) {
        if !self.is_under_way(identifier, flight) {
            return;
        }
        if let Some(boarded) = self.by_identifier.get_mut(identifier) {
            boarded.waiting -= 1;
            if boarded.waiting == 0 {
                self.by_identifier.remove(identifier);
            }
        }
    }

    fn is_under_way(&self, identifier: &str, flight: &Flight<R>) -> bool {
        let boarded = self.by_identifier.get(identifier);
        boarded.is_some_and(|boarded| Arc::ptr_eq(&boarded.flight, flight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_that_everybody_left_is_forgotten_and_one_that_landed_is_not_joined() {
        let mut flights: Flights<()> = Flights::new();
        let identifier: Arc<str> = "a".into();
        let (first, second) =
            (flights.board(&identifier).unwrap(), flights.board(&identifier).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        flights.leave(&identifier, &first);
        assert_eq!(flights.by_identifier.len(), 1);
        flights.leave(&identifier, &second);
        assert!(flights.by_identifier.is_empty());

        let old = flights.board(&identifier).unwrap();
        flights.land(&identifier, &old);
        let new = flights.board(&identifier).unwrap();
        assert!(!Arc::ptr_eq(&old, &new));
        flights.leave(&identifier, &old);
        assert_eq!(flights.by_identifier.len(), 1);
    }

    #[test]
    fn one_flight_too_many_is_refused_and_joining_is_not() {
        let mut flights: Flights<()> = Flights::new();
        for number in 0..FLIGHTS {
            flights.board(&number.to_string().into()).unwrap();
        }
        assert_eq!(flights.board(&"x".into()).unwrap_err().kind(), ErrorKind::Saturated);
        flights.board(&"0".into()).unwrap();
    }
}

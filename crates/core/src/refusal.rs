//! Why the queue said no. Exhaustive on purpose: a pure state machine can only refuse.

use std::fmt;
use std::time::Duration;

use crate::ids::Id;

/// Why an operation was refused. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The queue holds as many messages as its policy allows (M4).
    Full {
        /// The bound that was reached.
        max_size: u64,
    },
    /// The same idempotency key was used for another payload within the window (I2).
    KeyTaken {
        /// The message that was sent under the key.
        first: Id,
    },
    /// Every place in the dedup table holds an unexpired key (I3).
    DedupFull {
        /// The bound that was reached.
        capacity: usize,
        /// When enough keys have expired that there is a place.
        retry_after: Duration,
    },
    /// As many messages are in flight as the policy allows (L1).
    TooManyInFlight {
        /// The bound that was reached.
        max_in_flight: u64,
        /// When the first of them comes back.
        retry_after: Duration,
    },
    /// The receipt does not stand for a current delivery (V4).
    Stale(Stale),
    /// An extension would hold the delivery longer than retention allows (X5).
    HeldTooLong {
        /// The longest extension that would be accepted now.
        at_most: Duration,
    },
    /// There is no such dead letter.
    NotDead,
}

/// What became of the delivery that a stale receipt stood for, as far as the queue still knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Its deadline has passed.
    Expired,
    /// The message is gone, dead, back in line, or was delivered again.
    Superseded,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { max_size } => write!(f, "full: it holds max_size = {max_size} messages"),
            Self::KeyTaken { .. } => {
                f.write_str("idempotency key was used for another payload within the replay window")
            }
            Self::DedupFull { capacity, .. } => {
                write!(f, "all {capacity} places for idempotency keys hold unexpired keys")
            }
            Self::TooManyInFlight { max_in_flight, .. } => {
                write!(f, "max_in_flight = {max_in_flight} messages are in flight")
            }
            Self::Stale(Stale::Expired) => f.write_str("receipt handle expired: deadline passed"),
            Self::Stale(Stale::Superseded) => f.write_str(
                "receipt handle expired: the message was settled, delivered again or removed",
            ),
            Self::HeldTooLong { at_most } => {
                // Nobody asks for less than a millisecond.
                let at_most = at_most.saturating_sub(Duration::from_nanos(
                    u64::from(at_most.subsec_nanos()) % 1_000_000,
                ));
                write!(
                    f,
                    "this delivery can be held for {at_most:?} more at most, which is what \
                     retention.in_flight_factor times its first visibility timeout leaves of it"
                )
            }
            Self::NotDead => f.write_str("no such dead letter"),
        }
    }
}

impl std::error::Error for Refusal {}

//! What can be asked of a queue, as data: random sequences of it are generated and shrunk.

use mailbox_core::{DeadReason, Verdict};
use proptest::prelude::*;

use crate::rules::{Rules, span};

#[derive(Debug, Clone)]
pub(crate) enum Command {
    Send {
        delay: u64,
        group: Option<u8>,
        /// Idempotency key and payload.
        key: Option<(u8, u8)>,
    },
    Receive {
        visibility: u64,
    },
    Settle {
        /// Which delivery: 0 is the latest, 1 the one before.
        back: usize,
        choice: Choice,
    },
    /// The n-th dead letter; if there are fewer, a message that may not be dead.
    Redrive(usize),
    Discard(usize),
    Expire,
    Purge,
    Configure(Rules),
    Open,
    Wait(u64),
    /// The clock steps back.
    Back(u64),
}

/// A [`Verdict`] in ticks.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    Acknowledge,
    Nack { delay: u64, error: Option<String> },
    Extend { timeout: u64 },
    Reject { reason: DeadReason, error: Option<String> },
    Return,
}

impl Choice {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Acknowledge => Verdict::Acknowledge,
            Self::Nack { delay, error } => {
                Verdict::Nack { delay: span(*delay), error: error.clone().map(Into::into) }
            }
            Self::Extend { timeout } => Verdict::Extend { timeout: span(*timeout) },
            Self::Reject { reason, error } => {
                Verdict::Reject { reason: *reason, error: error.clone().map(Into::into) }
            }
            Self::Return => Verdict::Return,
        }
    }
}

/// Rules and up to `most` commands. Bounds, keys and groups are few, so that they are reached, used
/// again and shared.
pub(crate) fn stories(most: usize) -> impl Strategy<Value = (Rules, Vec<Command>)> {
    (rules(), prop::collection::vec(command(), 1..=most))
}

fn rules() -> impl Strategy<Value = Rules> {
    let maybe = |range: std::ops::RangeInclusive<u64>| prop::option::weighted(0.4, range);
    let bounds = (maybe(0..=6), prop_oneof![3 => Just(1_000), 1 => 0_u64..=3], maybe(1..=3));
    let dedup = (0_u64..=12, prop_oneof![1 => Just(1_000), 1 => 0_usize..=3]);
    let ages = (maybe(1..=25), maybe(0..=5), maybe(1..=4), maybe(0..=15), maybe(0..=3));
    (bounds, dedup, ages, any::<bool>()).prop_map(|(bounds, dedup, ages, late)| Rules {
        max_size: bounds.0,
        max_in_flight: bounds.1,
        max_attempts: bounds.2.and_then(|most| u32::try_from(most).ok()),
        window: dedup.0,
        dedup_capacity: dedup.1,
        late,
        ready_age: ages.0,
        ready_count: ages.1,
        in_flight_factor: ages.2.and_then(|factor| u32::try_from(factor).ok()),
        dead_age: ages.3,
        dead_count: ages.4,
    })
}

fn command() -> impl Strategy<Value = Command> {
    let delay = prop_oneof![3 => Just(0), 1 => 1_u64..=6];
    let key = prop::option::weighted(0.4, (0_u8..8, 0_u8..2));
    let group = prop::option::weighted(0.4, 0_u8..2);
    let send =
        (delay, group, key).prop_map(|(delay, group, key)| Command::Send { delay, group, key });
    let visibility = prop_oneof![1 => Just(0), 5 => 1_u64..=6];
    let back = prop_oneof![3 => Just(0_usize), 2 => 0_usize..4, 1 => 0_usize..30];
    prop_oneof![
        28 => send,
        28 => visibility.prop_map(|visibility| Command::Receive { visibility }),
        28 => (back, choice()).prop_map(|(back, choice)| Command::Settle { back, choice }),
        3 => (0_usize..4).prop_map(Command::Redrive),
        1 => (0_usize..4).prop_map(Command::Discard),
        4 => Just(Command::Expire),
        1 => Just(Command::Purge),
        1 => rules().prop_map(Command::Configure),
        1 => Just(Command::Open),
        16 => prop_oneof![6 => 1_u64..=2, 3 => 3_u64..=8, 1 => 9_u64..=30].prop_map(Command::Wait),
        2 => (1_u64..=8).prop_map(Command::Back),
    ]
}

fn choice() -> impl Strategy<Value = Choice> {
    let delay = prop_oneof![2 => Just(0), 1 => 1_u64..=6];
    let error = || prop::option::of(prop_oneof![Just("a".to_owned()), Just("b".to_owned())]);
    let reason = prop::sample::select(DeadReason::ALL.to_vec());
    prop_oneof![
        5 => Just(Choice::Acknowledge),
        5 => (delay, error()).prop_map(|(delay, error)| Choice::Nack { delay, error }),
        3 => (0_u64..=10).prop_map(|timeout| Choice::Extend { timeout }),
        2 => (reason, error()).prop_map(|(reason, error)| Choice::Reject { reason, error }),
        4 => Just(Choice::Return),
    ]
}

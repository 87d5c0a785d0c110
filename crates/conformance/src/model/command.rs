//! What can be asked of a mailbox, as data: random sequences of it are made and shrunk. Times are
//! in units.

use std::time::Duration;

use mailbox::{Abilities, DeadReason, LateSettle, Policy, Retention, Verdict};
use proptest::prelude::*;

/// Something to do to a mailbox.
#[derive(Debug, Clone)]
pub enum Command {
    /// Send a message.
    Send {
        /// With this delay.
        delay: u32,
        /// In this group.
        group: Option<u8>,
        /// With this idempotency key, and this payload to go with it.
        key: Option<(u8, u8)>,
    },
    /// Receive without waiting.
    Receive {
        /// Up to this many.
        most: u32,
        /// For this long.
        visibility: u32,
    },
    /// Settle a delivery.
    Settle {
        /// Which: 0 is the latest, 1 the one before.
        back: usize,
        /// How.
        choice: Choice,
    },
    /// Redrive dead letters.
    Redrive(Which),
    /// Delete dead letters.
    Delete(Which),
    /// Purge.
    Purge,
    /// Set the rules.
    Configure(Rules),
    /// Let time pass.
    Pass(u32),
}

/// A [`Verdict`] in units.
#[derive(Debug, Clone)]
pub enum Choice {
    /// Acknowledge.
    Acknowledge,
    /// Nack.
    Nack {
        /// With this delay.
        delay: u32,
        /// And these words.
        error: Option<String>,
    },
    /// Extend visibility.
    Extend {
        /// By this much.
        timeout: u32,
    },
    /// Reject.
    Reject {
        /// Because of this.
        reason: DeadReason,
        /// And these words.
        error: Option<String>,
    },
    /// Undo the delivery.
    Return,
}

/// Which dead letters.
#[derive(Debug, Clone)]
pub enum Which {
    /// All.
    All,
    /// The oldest.
    Oldest(u64),
    /// Those that died of this.
    Reason(DeadReason),
    /// The messages with these numbers in order of sending, dead or not.
    Messages(Vec<usize>),
}

/// A [`Policy`] in units.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "they are the fields of `Policy` and `Retention`")]
pub struct Rules {
    pub max_size: Option<u64>,
    pub max_in_flight: u64,
    pub max_attempts: Option<u32>,
    pub replay_window: u32,
    pub dedup_capacity: usize,
    pub late: bool,
    pub ready_age: Option<u32>,
    pub ready_count: Option<u64>,
    pub in_flight_factor: Option<u32>,
    pub dead_age: Option<u32>,
    pub dead_count: Option<u64>,
}

impl Rules {
    pub(super) fn policy(&self, unit: Duration) -> Policy {
        Policy {
            max_size: self.max_size,
            max_in_flight: self.max_in_flight,
            max_attempts: self.max_attempts,
            replay_window: unit * self.replay_window,
            dedup_capacity: self.dedup_capacity,
            late_settle: if self.late { LateSettle::UntilRedelivered } else { LateSettle::Refuse },
            retention: Retention {
                ready_age: self.ready_age.map(|age| unit * age),
                ready_count: self.ready_count,
                in_flight_factor: self.in_flight_factor,
                dead_age: self.dead_age.map(|age| unit * age),
                dead_count: self.dead_count,
            },
        }
    }
}

impl Choice {
    pub(super) fn verdict(&self, unit: Duration) -> Verdict {
        let words = |error: &Option<String>| error.clone().map(String::into_boxed_str);
        match self {
            Self::Acknowledge => Verdict::Acknowledge,
            Self::Nack { delay, error } => {
                Verdict::Nack { delay: unit * *delay, error: words(error) }
            }
            Self::Extend { timeout } => Verdict::Extend { timeout: unit * *timeout },
            Self::Reject { reason, error } => {
                Verdict::Reject { reason: *reason, error: words(error) }
            }
            Self::Return => Verdict::Return,
        }
    }
}

impl Command {
    /// This command without what a subject lacks.
    pub(super) fn within(&self, abilities: &Abilities) -> Self {
        match self.clone() {
            Self::Send { delay, group, key } => Self::Send {
                delay,
                group: group.filter(|_| abilities.groups),
                key: key.filter(|_| abilities.idempotency),
            },
            Self::Settle { back, choice: Choice::Return } if !abilities.undo => {
                Self::Settle { back, choice: Choice::Acknowledge }
            }
            other => other,
        }
    }
}

/// Rules and up to `most` commands. Bounds, keys and groups are few, so that they are reached, used
/// again and shared.
pub(super) fn stories(most: usize) -> impl Strategy<Value = (Rules, Vec<Command>)> {
    (rules(), prop::collection::vec(command(), 1..=most))
}

fn rules() -> impl Strategy<Value = Rules> {
    let maybe = |range: std::ops::RangeInclusive<u64>| prop::option::weighted(0.3, range);
    let times = |range: std::ops::RangeInclusive<u32>| prop::option::weighted(0.3, range);
    let bounds = (maybe(0..=6), prop_oneof![3 => Just(1_000), 1 => 1_u64..=3], times(1..=3));
    let dedup = (0_u32..=12, prop_oneof![1 => Just(1_000), 1 => 1_usize..=3]);
    let ages = (times(1..=25), maybe(0..=5), times(1..=4), times(1..=15), maybe(0..=3));
    (bounds, dedup, ages, any::<bool>()).prop_map(|(bounds, dedup, ages, late)| Rules {
        max_size: bounds.0,
        max_in_flight: bounds.1,
        max_attempts: bounds.2,
        replay_window: dedup.0,
        dedup_capacity: dedup.1,
        late,
        ready_age: ages.0,
        ready_count: ages.1,
        in_flight_factor: ages.2,
        dead_age: ages.3,
        dead_count: ages.4,
    })
}

fn command() -> impl Strategy<Value = Command> {
    let delay = prop_oneof![3 => Just(0), 1 => 1_u32..=6];
    let key = prop::option::weighted(0.3, (0_u8..4, 0_u8..2));
    let group = prop::option::weighted(0.4, 0_u8..2);
    let send =
        (delay, group, key).prop_map(|(delay, group, key)| Command::Send { delay, group, key });
    let visibility = prop_oneof![1 => Just(0), 5 => 1_u32..=6];
    let receive = (1_u32..=4, visibility)
        .prop_map(|(most, visibility)| Command::Receive { most, visibility });
    let back = prop_oneof![3 => Just(0_usize), 2 => 0_usize..4, 1 => 0_usize..30];
    let pass = prop_oneof![6 => 1_u32..=2, 3 => 3_u32..=8, 1 => 9_u32..=30];
    prop_oneof![
        28 => send,
        28 => receive,
        28 => (back, choice()).prop_map(|(back, choice)| Command::Settle { back, choice }),
        4 => which().prop_map(Command::Redrive),
        2 => which().prop_map(Command::Delete),
        1 => Just(Command::Purge),
        1 => rules().prop_map(Command::Configure),
        16 => pass.prop_map(Command::Pass),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        2 => Just(Which::All),
        2 => (0_u64..3).prop_map(Which::Oldest),
        1 => prop::sample::select(DeadReason::ALL.to_vec()).prop_map(Which::Reason),
        3 => prop::collection::vec(0_usize..8, 0..3).prop_map(Which::Messages),
    ]
}

fn choice() -> impl Strategy<Value = Choice> {
    let delay = prop_oneof![2 => Just(0), 1 => 1_u32..=6];
    let error = || prop::option::of(prop_oneof![Just("a".to_owned()), Just("b".to_owned())]);
    let reason = prop::sample::select(DeadReason::ALL.to_vec());
    prop_oneof![
        5 => Just(Choice::Acknowledge),
        5 => (delay, error()).prop_map(|(delay, error)| Choice::Nack { delay, error }),
        3 => (0_u32..=10).prop_map(|timeout| Choice::Extend { timeout }),
        2 => (reason, error()).prop_map(|(reason, error)| Choice::Reject { reason, error }),
        3 => Just(Choice::Return),
    ]
}

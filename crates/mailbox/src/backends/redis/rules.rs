//! The rules of a mailbox, as fields of a hash and as scripts take them. Invariant: both say the
//! same in the same order; ages are whole nanoseconds, and an empty text means none.

use std::time::Duration;

use mailbox_core::{LateSettle, Policy, Retention};

use crate::error::{Error, ErrorKind, Result};

/// What the fields are called.
pub(crate) const FIELDS: [&str; 11] = [
    "max_size",
    "max_in_flight",
    "max_attempts",
    "replay_window",
    "dedup_capacity",
    "late_settle",
    "ready_age",
    "ready_count",
    "in_flight_factor",
    "dead_age",
    "dead_count",
];

const UNTIL_REDELIVERED: &str = "until_redelivered";

/// What stands in the fields.
pub(crate) fn values(policy: &Policy) -> [String; FIELDS.len()] {
    fn or_empty(value: Option<impl ToString>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    let age = |age: Option<Duration>| or_empty(age.map(|age| age.as_nanos()));
    let retention = &policy.retention;
    [
        or_empty(policy.max_size),
        policy.max_in_flight.to_string(),
        or_empty(policy.max_attempts),
        age(Some(policy.replay_window)),
        policy.dedup_capacity.to_string(),
        match policy.late_settle {
            LateSettle::Refuse => "refuse".to_owned(),
            LateSettle::UntilRedelivered => UNTIL_REDELIVERED.to_owned(),
        },
        age(retention.ready_age),
        or_empty(retention.ready_count),
        or_empty(retention.in_flight_factor),
        age(retention.dead_age),
        or_empty(retention.dead_count),
    ]
}

/// All values in one text, as scripts take the rules of a mailbox that has none of its own. Nothing
/// stands for the default, which scripts know: to read it takes them longer than a send.
pub(crate) fn line(policy: &Policy) -> String {
    if *policy == Policy::default() {
        return String::new();
    }
    values(policy).iter().fold(String::new(), |line, value| line + value + ",")
}

/// Reads the fields.
pub(crate) fn read(values: &[String; FIELDS.len()]) -> Result<Policy> {
    let [max_size, max_in_flight, max_attempts, window, capacity, late, rest @ ..] = values;
    let [ready_age, ready_count, in_flight_factor, dead_age, dead_count] = rest;
    let age = |text: &String, field| -> Result<Option<Duration>> {
        Ok(number(text, field)?.map(Duration::from_nanos))
    };
    let needed = |text: &String, field| number(text, field)?.ok_or_else(|| damaged(field));
    Ok(Policy {
        max_size: number(max_size, "max_size")?,
        max_in_flight: needed(max_in_flight, "max_in_flight")?,
        max_attempts: number(max_attempts, "max_attempts")?,
        replay_window: Duration::from_nanos(needed(window, "replay_window")?),
        dedup_capacity: usize::try_from(needed(capacity, "dedup_capacity")?)
            .map_err(|_| damaged("dedup_capacity"))?,
        late_settle: match late.as_str() {
            UNTIL_REDELIVERED => LateSettle::UntilRedelivered,
            _ => LateSettle::Refuse,
        },
        retention: Retention {
            ready_age: age(ready_age, "ready_age")?,
            ready_count: number(ready_count, "ready_count")?,
            in_flight_factor: number(in_flight_factor, "in_flight_factor")?,
            dead_age: age(dead_age, "dead_age")?,
            dead_count: number(dead_count, "dead_count")?,
        },
    })
}

fn number<N: std::str::FromStr>(text: &str, field: &str) -> Result<Option<N>> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| damaged(field)),
    }
}

fn damaged(field: &str) -> Error {
    let message = format!("the rules of this mailbox on Redis are damaged: {field} is no number");
    Error::new(ErrorKind::Internal, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_know_the_rules_by_default() {
        let known = include_str!("scripts/prelude.lua");
        let Policy { max_in_flight, replay_window, dedup_capacity, .. } = Policy::default();
        let window = replay_window.as_secs();
        let rules = format!(
            "max_in_flight = {max_in_flight}, replay_window = {window} * UNIT, dedup_capacity = \
             {dedup_capacity},"
        );
        assert!(known.contains(&rules), "{rules}");
        let others = Policy { max_in_flight, replay_window, dedup_capacity, ..Policy::default() };
        let empty = values(&others).iter().filter(|value| value.is_empty()).count();
        assert_eq!((empty, line(&others).as_str()), (FIELDS.len() - 4, ""));
    }

    #[test]
    fn rules_read_back_as_they_were_written() {
        let mut policy = Policy { max_size: Some(0), max_attempts: Some(3), ..Policy::default() };
        policy.late_settle = LateSettle::UntilRedelivered;
        policy.retention.dead_age = Some(Duration::from_millis(1_500));
        for policy in [policy, Policy::default()] {
            assert_eq!(read(&values(&policy)).unwrap(), policy);
        }
        let policy = Policy { max_size: Some(1), ..Policy::default() };
        assert_eq!(line(&policy).matches(',').count(), FIELDS.len());
        let mut hostile = values(&Policy::default());
        hostile[1] = "many".to_owned();
        assert_eq!(read(&hostile).unwrap_err().kind(), ErrorKind::Internal);
    }
}

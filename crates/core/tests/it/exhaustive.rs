//! Every small world: all sequences of commands over two messages, with the same checks as the
//! random stories. Random search finds long stories; this one cannot miss a short one.

use mailbox_core::DeadReason;

use crate::command::{Choice, Command};
use crate::pair::{Honest, Pair, Subject};
use crate::rules::Rules;

/// Walks through every sequence of `depth` commands; gives how many there were.
pub(crate) fn walk<S: Subject>(pair: &Pair<S>, alphabet: &[Command], depth: u32) -> u64 {
    if depth == 0 {
        pair.assert_replay();
        return 1;
    }
    let possible = alphabet.iter().filter(|command| is_possible(pair, command));
    possible
        .map(|command| {
            let mut next = pair.clone();
            next.step(command);
            walk(&next, alphabet, depth - 1)
        })
        .sum()
}

/// Leaves out what has nothing to work on: a third message, a receipt or a dead letter that is not
/// there.
fn is_possible<S: Subject>(pair: &Pair<S>, command: &Command) -> bool {
    match command {
        Command::Send { .. } => pair.sent() < 2,
        Command::Settle { back, .. } => pair.deliveries() > *back,
        Command::Redrive(index) | Command::Discard(index) => pair.dead() > *index,
        _ => true,
    }
}

/// Two consumers: one settles the latest delivery in every way, one the delivery before.
pub(crate) fn alphabet(group: Option<u8>) -> Vec<Command> {
    let settle = |back, choice| Command::Settle { back, choice };
    vec![
        Command::Send { delay: 0, group, key: None },
        Command::Send { delay: 1, group, key: None },
        Command::Receive { visibility: 2 },
        settle(0, Choice::Acknowledge),
        settle(0, Choice::Nack { delay: 0, error: None }),
        settle(0, Choice::Nack { delay: 1, error: None }),
        settle(0, Choice::Extend { timeout: 3 }),
        settle(0, Choice::Return),
        settle(0, Choice::Reject { reason: DeadReason::Rejected, error: None }),
        settle(1, Choice::Acknowledge),
        settle(1, Choice::Nack { delay: 0, error: None }),
        settle(1, Choice::Return),
        Command::Redrive(0),
        Command::Wait(1),
        Command::Wait(2),
    ]
}

fn strict() -> Rules {
    Rules { max_attempts: Some(2), in_flight_factor: Some(2), ..Rules::default() }
}

fn lenient() -> Rules {
    Rules { late: true, max_in_flight: 1, ready_age: Some(5), ..Rules::default() }
}

/// From an empty queue, and from one that both messages and a bystander of no group are in.
fn worlds(rules: &Rules, group: Option<u8>) -> (u64, u64) {
    let empty = Pair::new(Honest, rules);
    let mut filled = empty.clone();
    for group in [group, None, group] {
        filled.step(&Command::Send { delay: 0, group, key: None });
    }
    let alphabet = alphabet(group);
    (walk(&empty, &alphabet, 7), walk(&filled, &alphabet, 6))
}

// The numbers are there so that the walk cannot silently become shorter.

#[test]
fn every_world_of_two_messages_goes_as_the_naive_model_says() {
    assert_eq!(worlds(&strict(), None), (372_914, 112_955));
}

#[test]
fn every_world_of_two_messages_in_one_group_goes_as_the_naive_model_says() {
    assert_eq!(worlds(&strict(), Some(0)), (356_784, 112_953));
}

#[test]
fn every_world_with_late_settling_and_retention_goes_as_the_naive_model_says() {
    assert_eq!(worlds(&lenient(), None), (367_237, 94_229));
}

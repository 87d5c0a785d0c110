//! What producers and consumers did to mailboxes on Redis and what they were answered, and what
//! follows from it. Pure: times are given.
//!
//! Invariant: an answer counts as a promise, an error as a maybe. A message whose send was answered
//! must be received until its acknowledgement is answered, and never by a receive that began later.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use mailbox::MessageId;

use crate::violation::Violation;

/// Bits of a number that count the messages of one producer; above them is the producer, and above
/// that the mailbox.
const SEQUENCE_BITS: u32 = 32;
const PRODUCER_BITS: u32 = 8;

/// The number of a message.
pub(crate) const fn number(mailbox: usize, producer: usize, sequence: u32) -> u64 {
    ((mailbox << PRODUCER_BITS | producer) as u64) << SEQUENCE_BITS | sequence as u64
}

/// The mailbox that a message is sent to.
const fn mailbox_of(number: u64) -> usize {
    (number >> (SEQUENCE_BITS + PRODUCER_BITS)) as usize
}

/// All messages of one experiment.
#[derive(Debug, Default)]
pub(crate) struct Book {
    messages: HashMap<u64, Message>,
    /// Those of which an audit has shown that they are gone.
    gone: HashSet<u64>,
    /// Of each producer the highest number that was received.
    highest: HashMap<u64, u64>,
    /// What goes on, by mailbox.
    traffic: HashMap<usize, Traffic>,
    /// Messages since the last audit that were sent, and those that were acknowledged.
    came: u64,
    went: u64,
    counts: Counts,
    violations: Vec<Violation>,
}

#[derive(Debug, Default)]
struct Traffic {
    open_sends: u64,
    open_deliveries: u64,
    /// When sends were answered, since the last mark.
    answers: Vec<Instant>,
    /// Since the last mark.
    deliveries: u64,
}

/// What was counted since the last mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Sends that were answered.
    pub(crate) sends: u64,
    /// Acknowledgements that were answered.
    pub(crate) acks: u64,
    /// Deliveries of messages that had been delivered before.
    pub(crate) duplicates: u64,
    /// How far behind the highest number of its producer a message was first received, at most.
    pub(crate) depth: u64,
    /// Sends that gave `Connection`.
    pub(crate) sends_in_doubt: u64,
    /// Acknowledgements that gave `Connection`.
    pub(crate) acks_in_doubt: u64,
    /// Acknowledgements of deliveries that were over.
    pub(crate) acks_refused: u64,
    /// Receives that gave `Connection`.
    pub(crate) receives_failed: u64,
}

impl Counts {
    /// Adds what was counted later.
    pub(crate) fn add(&mut self, later: &Self) {
        self.sends += later.sends;
        self.acks += later.acks;
        self.duplicates += later.duplicates;
        self.depth = self.depth.max(later.depth);
        self.sends_in_doubt += later.sends_in_doubt;
        self.acks_in_doubt += later.acks_in_doubt;
        self.acks_refused += later.acks_refused;
        self.receives_failed += later.receives_failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { duplicates, depth, sends_in_doubt, acks_in_doubt, acks_refused, .. } = self;
        write!(
            f,
            "reorder {depth}, duplicates {duplicates}, in doubt {sends_in_doubt} sends and \
             {acks_in_doubt} acks, {acks_refused} acks too late, {} receives failed",
            self.receives_failed
        )
    }
}

#[derive(Debug, Default)]
struct Message {
    is_sent: bool,
    id: Option<MessageId>,
    deliveries: u32,
    /// When an acknowledgement was answered.
    acked: Option<Instant>,
    /// An acknowledgement gave `Connection`: it may have taken effect.
    ack_in_doubt: bool,
}

impl Book {
    /// A send begins.
    pub(crate) fn try_send(&mut self, number: u64) {
        self.messages.entry(number).or_default();
        self.traffic(number).open_sends += 1;
    }

    /// A send was answered.
    pub(crate) fn sent(&mut self, number: u64, id: &MessageId, at: Instant) {
        self.counts.sends += 1;
        self.came += 1;
        let traffic = self.traffic(number);
        traffic.open_sends -= 1;
        traffic.answers.push(at);
        if let Some(message) = self.messages.get_mut(&number) {
            message.is_sent = true;
        }
        self.identify(number, id);
    }

    /// A send gave `Connection`.
    pub(crate) fn send_in_doubt(&mut self, number: u64) {
        self.traffic(number).open_sends -= 1;
        self.counts.sends_in_doubt += 1;
    }

    /// A call gave an error that it must not give.
    pub(crate) fn failed(&mut self, what: String) {
        self.violations.push(Violation::Failure(what));
    }

    /// A send gave an error that it must not give.
    pub(crate) fn send_failed(&mut self, number: u64, what: String) {
        self.traffic(number).open_sends -= 1;
        self.failed(what);
    }

    /// A receive gave `Connection`.
    pub(crate) fn receive_failed(&mut self) {
        self.counts.receives_failed += 1;
    }

    /// A receive that began at `began` gave this message.
    pub(crate) fn delivered(&mut self, number: u64, id: &MessageId, began: Instant) {
        let traffic = self.traffic(number);
        traffic.open_deliveries += 1;
        traffic.deliveries += 1;
        if self.gone.contains(&number) {
            self.counts.duplicates += 1;
            self.violations.push(Violation::BackAgain(number));
            return;
        }
        let Some(message) = self.messages.get_mut(&number) else {
            self.violations.push(Violation::Phantom(number));
            return;
        };
        if message.acked.is_some_and(|acked| acked < began) {
            self.violations.push(Violation::BackAgain(number));
        }
        let is_first = message.deliveries == 0;
        message.deliveries += 1;
        self.identify(number, id);
        if is_first {
            let highest = self.highest.entry(number >> SEQUENCE_BITS).or_insert(number);
            self.counts.depth = self.counts.depth.max(highest.saturating_sub(number));
            *highest = (*highest).max(number);
        } else {
            self.counts.duplicates += 1;
        }
    }

    /// An acknowledgement was answered.
    pub(crate) fn acked(&mut self, number: u64, at: Instant) {
        self.traffic(number).open_deliveries -= 1;
        self.counts.acks += 1;
        if let Some(message) = self.messages.get_mut(&number) {
            self.went += u64::from(message.acked.is_none());
            message.acked.get_or_insert(at);
        }
    }

    /// An acknowledgement gave `Connection`.
    pub(crate) fn ack_in_doubt(&mut self, number: u64) {
        self.traffic(number).open_deliveries -= 1;
        self.counts.acks_in_doubt += 1;
        if let Some(message) = self.messages.get_mut(&number) {
            message.ack_in_doubt = true;
        }
    }

    /// An acknowledgement was refused: the delivery is over.
    pub(crate) fn ack_refused(&mut self, number: u64) {
        self.traffic(number).open_deliveries -= 1;
        self.counts.acks_refused += 1;
    }

    /// Sends without an answer and deliveries that nobody has settled, of the first so many
    /// mailboxes.
    pub(crate) fn in_flight(&self, mailboxes: usize) -> u64 {
        self.first(mailboxes).map(|traffic| traffic.open_sends + traffic.open_deliveries).sum()
    }

    /// Deliveries since the last mark, of the first so many mailboxes.
    pub(crate) fn deliveries(&self, mailboxes: usize) -> u64 {
        self.first(mailboxes).map(|traffic| traffic.deliveries).sum()
    }

    /// Messages that were sent, as far as is known, and are not acknowledged.
    pub(crate) fn backlog(&self) -> u64 {
        self.came.saturating_sub(self.went)
    }

    /// Begins to count anew.
    pub(crate) fn mark(&mut self) {
        self.counts = Counts::default();
        for traffic in self.traffic.values_mut() {
            traffic.answers.clear();
            traffic.deliveries = 0;
        }
    }

    /// What was counted since the last mark.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether a send to this mailbox was answered at or after this moment.
    pub(crate) fn is_served_since(&self, mailbox: usize, since: Instant) -> bool {
        let last = self.traffic.get(&mailbox).and_then(|traffic| traffic.answers.last());
        last.is_some_and(|last| *last >= since)
    }

    /// The longest time from `from` to `to` in which no send to this mailbox was answered, and when
    /// it was over.
    pub(crate) fn longest_gap(
        &self,
        mailbox: usize,
        from: Instant,
        to: Instant,
    ) -> (Duration, Instant) {
        let answers = self.traffic.get(&mailbox).map_or(&[][..], |traffic| &traffic.answers);
        let within = answers.iter().copied().filter(|at| (from..to).contains(at));
        let ends = within.clone().chain([to]);
        let gaps = [from].into_iter().chain(within).zip(ends).map(|(a, b)| (b - a, b));
        gaps.max().unwrap_or((to - from, to))
    }

    /// The mailboxes are empty, and nobody sends or receives: whatever was promised and has not
    /// come is lost.
    pub(crate) fn audit(&mut self) {
        (self.came, self.went) = (0, 0);
        for (number, message) in std::mem::take(&mut self.messages) {
            let may_be_gone = message.acked.is_some() || message.ack_in_doubt;
            if message.is_sent && !may_be_gone {
                self.violations.push(Violation::Lost(number));
            }
            if message.is_sent || may_be_gone {
                self.gone.insert(number);
            } else {
                self.messages.insert(number, message);
            }
        }
    }

    /// Notes something else that was broken.
    pub(crate) fn report(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    /// What was broken since the last call.
    pub(crate) fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    fn traffic(&mut self, number: u64) -> &mut Traffic {
        self.traffic.entry(mailbox_of(number)).or_default()
    }

    fn first(&self, mailboxes: usize) -> impl Iterator<Item = &Traffic> {
        (0..mailboxes).filter_map(|mailbox| self.traffic.get(&mailbox))
    }

    /// A message has one id, however often its send was tried.
    fn identify(&mut self, number: u64, id: &MessageId) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        if *message.id.get_or_insert_with(|| id.clone()) != *id {
            self.violations.push(Violation::Doubled(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Play {
        book: Book,
        start: Instant,
    }

    fn play() -> Play {
        Play { book: Book::default(), start: Instant::now() }
    }

    fn id(text: &str) -> MessageId {
        MessageId::from_text(text)
    }

    impl Play {
        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        fn send(&mut self, number: u64, at: u64) {
            self.book.try_send(number);
            self.book.sent(number, &id(&number.to_string()), self.at(at));
        }

        fn deliver(&mut self, number: u64, began: u64) {
            self.book.delivered(number, &id(&number.to_string()), self.at(began));
        }

        fn ack(&mut self, number: u64, at: u64) {
            self.book.acked(number, self.at(at));
        }

        fn audited(&mut self) -> Vec<Violation> {
            self.book.audit();
            self.book.take_violations()
        }
    }

    #[test]
    fn an_answered_send_that_never_comes_is_lost() {
        let mut play = play();
        play.send(1, 0);
        play.send(2, 1);
        play.deliver(2, 2);
        play.ack(2, 3);
        assert_eq!(play.audited(), [Violation::Lost(1)]);
        assert_eq!(play.audited(), []);
    }

    #[test]
    fn a_delivery_that_nobody_acknowledged_does_not_take_the_message_away() {
        let mut play = play();
        play.send(1, 0);
        play.deliver(1, 1);
        play.book.ack_refused(1);
        assert_eq!(play.audited(), [Violation::Lost(1)]);
    }

    #[test]
    fn a_send_or_an_acknowledgement_in_doubt_may_be_either() {
        let mut play = play();
        play.book.try_send(1);
        play.book.send_in_doubt(1);
        play.send(2, 0);
        play.deliver(2, 1);
        play.book.ack_in_doubt(2);
        assert_eq!(play.audited(), []);
        play.deliver(1, 2);
        play.ack(1, 3);
        assert_eq!(play.audited(), []);
        assert_eq!(play.book.counts().duplicates, 0);
    }

    #[test]
    fn what_was_acknowledged_must_not_come_to_a_receive_that_began_later() {
        let mut play = play();
        play.send(1, 0);
        play.deliver(1, 1);
        play.ack(1, 5);
        play.deliver(1, 4);
        assert_eq!(play.book.take_violations(), []);
        play.deliver(1, 6);
        assert_eq!(play.book.take_violations(), [Violation::BackAgain(1)]);
        assert_eq!(play.audited(), []);
        play.deliver(1, 7);
        assert_eq!(play.book.take_violations(), [Violation::BackAgain(1)]);
        assert_eq!(play.book.counts().duplicates, 3);
    }

    #[test]
    fn a_message_with_two_ids_was_sent_twice_and_one_that_nobody_sent_is_a_phantom() {
        let mut play = play();
        play.book.try_send(1);
        play.book.delivered(1, &id("a"), play.start);
        play.book.sent(1, &id("a"), play.start);
        assert_eq!(play.book.take_violations(), []);
        play.book.delivered(1, &id("b"), play.start);
        assert_eq!(play.book.take_violations(), [Violation::Doubled(1)]);
        play.deliver(9, 0);
        assert_eq!(play.book.take_violations(), [Violation::Phantom(9)]);
    }

    #[test]
    fn the_depth_is_how_far_a_first_delivery_is_behind_its_own_producer() {
        let mut play = play();
        for sequence in 0..4 {
            play.send(number(0, 0, sequence), 0);
            play.send(number(0, 1, sequence), 0);
        }
        for sequence in [0, 3, 3, 1] {
            play.deliver(number(0, 0, sequence), 1);
        }
        play.deliver(number(0, 1, 0), 1);
        assert_eq!((play.book.counts().depth, play.book.counts().duplicates), (2, 1));
        play.book.mark();
        play.deliver(number(0, 0, 0), 1);
        assert_eq!((play.book.counts().depth, play.book.counts().duplicates), (0, 1));
    }

    #[test]
    fn the_longest_gap_is_between_answers_of_one_mailbox() {
        let mut play = play();
        for at in [0, 10, 210, 250] {
            play.send(number(1, 0, at), u64::from(at));
        }
        play.send(number(0, 0, 0), 100);
        let millis = Duration::from_millis;
        let gap = play.book.longest_gap(1, play.at(5), play.at(260));
        assert_eq!(gap, (millis(200), play.at(210)));
        assert_eq!(play.book.longest_gap(1, play.at(5), play.at(900)).0, millis(650));
        assert_eq!(play.book.longest_gap(2, play.at(5), play.at(900)).0, millis(895));
        assert!(play.book.is_served_since(1, play.at(250)));
        assert!(!play.book.is_served_since(1, play.at(251)));
    }

    #[test]
    fn what_is_open_is_in_flight() {
        let mut play = play();
        play.book.try_send(7);
        play.book.try_send(number(1, 0, 0));
        play.send(1, 0);
        play.deliver(1, 1);
        assert_eq!((play.book.in_flight(1), play.book.in_flight(2)), (2, 3));
        assert_eq!((play.book.deliveries(1), play.book.backlog()), (1, 1));
        play.ack(1, 2);
        play.book.send_in_doubt(7);
        assert_eq!((play.book.in_flight(1), play.book.backlog()), (0, 0));
        play.book.mark();
        assert_eq!((play.book.in_flight(2), play.book.deliveries(1)), (1, 0));
    }
}

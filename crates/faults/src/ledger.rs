//! What was tried and what was answered, and what must therefore be there. Pure: it reads no clock
//! and no disk.
//!
//! Invariant: an attempt without an answer may have taken effect or not; an audit sees which, and
//! from then on it is as certain as an answer. A recovery that later thinks otherwise is caught.
//! Several workers may tell it at once: nothing depends on whom it hears first.

use std::collections::{HashMap, HashSet};

use crate::event::Event;
use crate::letters::Content;
use crate::violation::Violation;

/// Which call an answer belongs to: a message may be received, and its deletion be tried, before
/// its sender has said that it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Call {
    Send,
    Delete,
}

/// All messages of one home.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: HashMap<u64, Entry>,
    violations: Vec<Violation>,
    /// Messages whose send or deletion began after a failure was reported. Only while `strict`.
    late: HashSet<(Call, u64)>,
    strict: bool,
    /// Deliveries must be counted for good.
    counting: bool,
    has_failed: bool,
    counts: Counts,
}

/// How much was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Sends.
    pub(crate) sends: u64,
    /// Deletions.
    pub(crate) deletes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    send: Send,
    /// Deletions that have begun and have no answer.
    deletions_open: u32,
    deliveries: Deliveries,
}

/// What is known about the deliveries of a message since it came into line.
#[derive(Debug, Clone, Copy, Default)]
struct Deliveries {
    /// A bit for each count that somebody got.
    counts: u64,
    /// Two got the same.
    twice: bool,
    /// Somebody tried to redrive it: then it may have begun anew.
    redriven: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Send {
    /// No answer: it may be there.
    Tried,
    /// It was there at some time for certain.
    Kept,
    /// It was refused: never there.
    Refused,
    /// It was deleted for certain.
    Gone,
}

impl Ledger {
    /// A ledger of a home that counts every delivery for good.
    pub(crate) fn counting() -> Self {
        Self { counting: true, ..Self::default() }
    }

    /// A ledger of a journal that must not answer anything any more once it has reported a failure.
    pub(crate) fn strict() -> Self {
        Self { strict: true, ..Self::default() }
    }

    /// Notes an event. One that is not `certain` came when the power may have been off already: an
    /// attempt counts, an answer does not.
    pub(crate) fn note(&mut self, event: &Event, certain: bool) {
        match event {
            Event::TrySend(number) => {
                self.entries.entry(*number).or_insert(Entry::TRIED);
                self.begin(Call::Send, *number);
            }
            Event::TryDelete(number) => {
                self.entry(*number).deletions_open += 1;
                self.begin(Call::Delete, *number);
            }
            Event::DeleteRefused(number) => {
                let entry = self.entry(*number);
                entry.deletions_open = entry.deletions_open.saturating_sub(1);
            }
            Event::Sent(number) => self.sent(*number, certain),
            Event::SendRefused(number) => {
                let entry = self.entry(*number);
                if entry.send == Send::Tried {
                    entry.send = Send::Refused;
                }
            }
            Event::Deleted(number) => self.deleted(*number, certain),
            Event::Delivered(number, count) => self.entry(*number).deliveries.note(*count),
            Event::TryRedrive(number) => self.entry(*number).deliveries.redriven = true,
            Event::Damaged(number) => self.violations.push(Violation::Damaged(*number)),
            Event::Unreadable => self.violations.push(Violation::Unreadable),
            Event::Failed { .. } => self.has_failed = true,
            Event::Opened => {}
        }
    }

    /// Compares what is there with what must be, live and dead messages together, and takes it as
    /// the truth from then on.
    pub(crate) fn audit(&mut self, found: &[Content]) {
        let mut seen = HashSet::with_capacity(found.len());
        for content in found {
            let number = match *content {
                Content::Intact(number) => number,
                Content::Damaged(number) => {
                    self.violations.push(Violation::Damaged(number));
                    number
                }
                Content::Unreadable => {
                    self.violations.push(Violation::Unreadable);
                    continue;
                }
            };
            if !seen.insert(number) {
                self.violations.push(Violation::Doubled(number));
            }
        }
        for number in &seen {
            match self.entries.get(number).map(|entry| entry.send) {
                None | Some(Send::Refused) => self.violations.push(Violation::Phantom(*number)),
                Some(Send::Gone) => self.violations.push(Violation::BackAgain(*number)),
                Some(Send::Tried | Send::Kept) => {}
            }
            let entry = self.entries.entry(*number).or_insert(Entry::TRIED);
            (entry.send, entry.deletions_open) = (Send::Kept, 0);
        }
        for (number, entry) in &mut self.entries {
            if seen.contains(number) || entry.send == Send::Refused {
                continue;
            }
            if entry.send == Send::Kept && entry.deletions_open == 0 {
                self.violations.push(Violation::Lost(*number));
            }
            *entry = Entry::GONE;
        }
    }

    /// A message was found that says it has been delivered this often. Takes it as the truth.
    pub(crate) fn recount(&mut self, number: u64, deliveries: u32) {
        let is_counted = self.counting;
        let known = &mut self.entry(number).deliveries;
        let is_wrong = !known.redriven && (known.twice || known.highest() > deliveries);
        *known = Deliveries::up_to(deliveries);
        if is_counted && is_wrong {
            self.violations.push(Violation::Miscounted(number));
        }
    }

    /// The home was opened anew: failures of before are over.
    pub(crate) fn reopened(&mut self) {
        self.late.clear();
        self.has_failed = false;
    }

    /// Messages whose send had no answer.
    pub(crate) fn in_doubt(&self) -> impl Iterator<Item = u64> {
        self.with(Send::Tried)
    }

    /// Messages that were there at some time for certain, of those numbered from `first` on,
    /// whether or not they have been deleted since.
    pub(crate) fn known_since(&self, first: u64) -> impl Iterator<Item = u64> {
        let known = self.with(Send::Kept).chain(self.with(Send::Gone));
        known.filter(move |number| *number >= first)
    }

    /// Notes something else that was broken.
    pub(crate) fn report(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    /// What was broken since the last call.
    pub(crate) fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// How much was answered since the last call of [`Ledger::take_counts`].
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The same, and starts anew.
    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Goes on from these counts.
    pub(crate) fn set_counts(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// Whether a failure was reported since the home was last opened.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn sent(&mut self, number: u64, certain: bool) {
        self.answered(Call::Send, number);
        if !certain {
            return;
        }
        self.counts.sends += 1;
        let entry = self.entry(number);
        if entry.send == Send::Tried {
            entry.send = Send::Kept;
        }
    }

    fn deleted(&mut self, number: u64, certain: bool) {
        self.answered(Call::Delete, number);
        if certain {
            self.counts.deletes += 1;
            *self.entry(number) = Entry::GONE;
        }
    }

    fn begin(&mut self, call: Call, number: u64) {
        if self.strict && self.has_failed {
            self.late.insert((call, number));
        }
    }

    fn answered(&mut self, call: Call, number: u64) {
        if self.late.remove(&(call, number)) {
            self.violations.push(Violation::LateAnswer(number));
        }
    }

    fn entry(&mut self, number: u64) -> &mut Entry {
        self.entries.entry(number).or_insert(Entry::TRIED)
    }

    fn with(&self, send: Send) -> impl Iterator<Item = u64> {
        let is_so = move |(_, entry): &(&u64, &Entry)| entry.send == send;
        self.entries.iter().filter(is_so).map(|(number, _)| *number)
    }
}

impl Entry {
    const TRIED: Self = Self::of(Send::Tried);
    const GONE: Self = Self::of(Send::Gone);

    const fn of(send: Send) -> Self {
        let deliveries = Deliveries { counts: 0, twice: false, redriven: false };
        Self { send, deletions_open: 0, deliveries }
    }
}

impl Deliveries {
    /// Those with all counts up to this one; 0 for none.
    fn up_to(count: u32) -> Self {
        Self { counts: Self::bit(count) | (Self::bit(count) - 1), ..Self::default() }
    }

    fn note(&mut self, count: u32) {
        self.twice |= self.counts & Self::bit(count) != 0;
        self.counts |= Self::bit(count);
    }

    fn highest(self) -> u32 {
        self.counts.checked_ilog2().unwrap_or(0)
    }

    /// Beyond what fits they are all one: nothing is delivered that often here.
    fn bit(count: u32) -> u64 {
        1 << count.min(63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(events: &[Event]) -> Ledger {
        let mut ledger = Ledger::default();
        note_all(&mut ledger, events);
        ledger
    }

    fn note_all(ledger: &mut Ledger, events: &[Event]) {
        for event in events {
            ledger.note(event, true);
        }
    }

    fn audit(ledger: &mut Ledger, found: &[u64]) -> Vec<Violation> {
        let found: Vec<Content> = found.iter().map(|number| Content::Intact(*number)).collect();
        ledger.audit(&found);
        ledger.take_violations()
    }

    fn kept(number: u64) -> [Event; 2] {
        [Event::TrySend(number), Event::Sent(number)]
    }

    fn gone(number: u64) -> [Event; 4] {
        let [first, second] = kept(number);
        [first, second, Event::TryDelete(number), Event::Deleted(number)]
    }

    fn failure() -> Event {
        Event::Failed { call: "send".into(), kind: "Internal".into(), text: String::new() }
    }

    #[test]
    fn an_answered_send_that_is_missing_is_lost_and_reported_a_single_time() {
        let mut ledger = ledger(&kept(1));
        assert_eq!(audit(&mut ledger, &[]), [Violation::Lost(1)]);
        assert_eq!(audit(&mut ledger, &[]), []);
    }

    #[test]
    fn an_answered_send_that_is_there_is_fine_and_must_stay() {
        let mut ledger = ledger(&kept(1));
        assert_eq!(audit(&mut ledger, &[1]), []);
        assert_eq!(audit(&mut ledger, &[]), [Violation::Lost(1)]);
    }

    #[test]
    fn a_deletion_without_answer_may_be_either_until_an_audit_has_seen_which() {
        let mut events = kept(1).to_vec();
        events.push(Event::TryDelete(1));
        let mut there = ledger(&events);
        assert_eq!(audit(&mut there, &[1]), []);
        assert_eq!(audit(&mut there, &[]), [Violation::Lost(1)]);
        let mut missing = ledger(&events);
        assert_eq!(audit(&mut missing, &[]), []);
        assert_eq!(audit(&mut missing, &[1]), [Violation::BackAgain(1)]);
    }

    #[test]
    fn a_refused_deletion_changes_nothing_unless_another_one_is_open() {
        let mut events = kept(1).to_vec();
        events.extend([Event::TryDelete(1), Event::DeleteRefused(1)]);
        assert_eq!(audit(&mut ledger(&events), &[]), [Violation::Lost(1)]);
        events.push(Event::TryDelete(1));
        assert_eq!(audit(&mut ledger(&events), &[]), []);
    }

    #[test]
    fn an_answered_deletion_must_not_come_back() {
        let mut ledger = ledger(&gone(1));
        assert_eq!(audit(&mut ledger, &[]), []);
        assert_eq!(audit(&mut ledger, &[1]), [Violation::BackAgain(1)]);
    }

    #[test]
    fn a_send_without_answer_may_be_either_until_an_audit_has_seen_which() {
        let mut there = ledger(&[Event::TrySend(1)]);
        assert_eq!(audit(&mut there, &[1]), []);
        assert_eq!(audit(&mut there, &[]), [Violation::Lost(1)]);
        let mut missing = ledger(&[Event::TrySend(1)]);
        assert_eq!(audit(&mut missing, &[]), []);
        assert_eq!(audit(&mut missing, &[1]), [Violation::BackAgain(1)]);
    }

    #[test]
    fn a_message_that_nobody_sent_or_that_was_refused_is_a_phantom() {
        assert_eq!(audit(&mut Ledger::default(), &[9]), [Violation::Phantom(9)]);
        let mut ledger = ledger(&[Event::TrySend(1), Event::SendRefused(1)]);
        assert_eq!(audit(&mut ledger, &[]), []);
        assert_eq!(audit(&mut ledger, &[1]), [Violation::Phantom(1)]);
    }

    #[test]
    fn a_message_that_is_there_twice_is_doubled() {
        assert_eq!(audit(&mut ledger(&kept(1)), &[1, 1]), [Violation::Doubled(1)]);
    }

    #[test]
    fn a_damaged_message_is_reported_and_not_also_lost() {
        let mut ledger = ledger(&kept(1));
        ledger.audit(&[Content::Damaged(1), Content::Unreadable]);
        assert_eq!(ledger.take_violations(), [Violation::Damaged(1), Violation::Unreadable]);
    }

    #[test]
    fn a_worker_that_received_damage_is_heard() {
        let mut ledger = ledger(&[Event::Damaged(4), Event::Unreadable]);
        assert_eq!(ledger.take_violations(), [Violation::Damaged(4), Violation::Unreadable]);
    }

    #[test]
    fn an_answer_that_came_after_the_cut_is_an_attempt_only() {
        let mut ledger = ledger(&kept(2));
        for event in [Event::TrySend(1), Event::Sent(1), Event::TryDelete(2), Event::Deleted(2)] {
            ledger.note(&event, false);
        }
        assert_eq!(ledger.take_counts(), Counts { sends: 1, deletes: 0 });
        assert_eq!(audit(&mut ledger, &[2]), []);
    }

    #[test]
    fn an_answer_to_what_began_after_a_failure_is_caught_if_asked_for() {
        let after = [failure(), Event::TrySend(2), Event::Sent(2)];
        let mut strict = Ledger::strict();
        note_all(&mut strict, &after);
        assert_eq!(strict.take_violations(), [Violation::LateAnswer(2)]);
        let mut before = Ledger::strict();
        note_all(&mut before, &[Event::TrySend(2), failure(), Event::Sent(2)]);
        assert_eq!(before.take_violations(), []);
        assert_eq!(ledger(&after).take_violations(), []);
        let mut reopened = Ledger::strict();
        note_all(&mut reopened, &[failure(), Event::TrySend(2)]);
        reopened.reopened();
        note_all(&mut reopened, &[Event::Sent(2), Event::TryDelete(2), Event::Deleted(2)]);
        assert_eq!(reopened.take_violations(), []);
        assert!(!reopened.has_failed());
    }

    #[test]
    fn a_second_answer_does_not_bring_a_deleted_message_to_life() {
        let mut ledger = ledger(&gone(1));
        note_all(&mut ledger, &kept(1));
        assert_eq!(audit(&mut ledger, &[]), []);
    }

    #[test]
    fn a_delivery_that_was_not_counted_is_caught_if_asked_for() {
        let told = |counts: &[u32], found: u32| {
            let mut ledger = Ledger::counting();
            note_all(&mut ledger, &kept(1));
            for count in counts {
                ledger.note(&Event::Delivered(1, *count), true);
            }
            ledger.recount(1, found);
            ledger
        };
        for (counts, found) in [(&[][..], 0), (&[], 2), (&[1], 1), (&[2, 1], 2), (&[1, 3], 4)] {
            assert_eq!(told(counts, found).take_violations(), [], "{counts:?} {found}");
        }
        for (counts, found) in [(&[1][..], 0), (&[3, 1], 2), (&[1, 1], 1), (&[2, 1, 2], 5)] {
            let wrong = told(counts, found).take_violations();
            assert_eq!(wrong, [Violation::Miscounted(1)], "{counts:?} {found}");
        }
        // What was found is where it goes on from.
        let mut ledger = told(&[1], 2);
        ledger.note(&Event::Delivered(1, 2), true);
        ledger.recount(1, 3);
        assert_eq!(ledger.take_violations(), [Violation::Miscounted(1)]);
        // A redrive begins anew, whoever is heard first.
        for event in [Event::Delivered(1, 1), Event::TryRedrive(1)] {
            ledger.note(&event, true);
        }
        ledger.recount(1, 1);
        assert_eq!(ledger.take_violations(), []);
    }

    #[test]
    fn what_is_in_doubt_and_what_is_known_can_be_asked_for() {
        let mut ledger = ledger(&gone(1));
        note_all(&mut ledger, &kept(2));
        note_all(&mut ledger, &[Event::TrySend(3)]);
        assert_eq!(ledger.in_doubt().collect::<Vec<_>>(), [3]);
        assert_eq!(ledger.known_since(2).collect::<Vec<_>>(), [2]);
        assert_eq!(ledger.known_since(0).count(), 2);
    }
}

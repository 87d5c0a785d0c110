//! Messages by number, and what has become of them in all.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mailbox_wire::json::Envelope;

use super::KIB;
use crate::rig::Dice;

/// Makes messages, and counts what is found of them.
pub(super) struct Books {
    next: AtomicU64,
    /// Digits, so that they can be compressed, but not to nothing.
    filling: String,
    pub(super) tally: Tally,
}

/// What was seen, to know that there was something to see.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Connections that were cut.
    pub(super) cuts: AtomicUsize,
    /// Answers with messages in them, of which a part was heard and the rest cannot have left.
    pub(super) partly: AtomicUsize,
    /// Messages that came back at once, as if nobody had ever received them.
    pub(super) given_back: AtomicUsize,
    /// Messages that were heard, and came back once their time was over.
    pub(super) kept: AtomicUsize,
    /// Messages that were heard, and given back because what was behind them did not leave.
    pub(super) kept_in_vain: AtomicUsize,
    /// Messages that were acknowledged before the cut, and the cutter knows.
    pub(super) acknowledged: AtomicUsize,
    /// Messages that were sent before the cut, and the cutter knows.
    pub(super) accepted: AtomicUsize,
    /// Messages of which the cutter never knew, and that were there.
    pub(super) unknown: AtomicUsize,
}

impl Tally {
    pub(super) fn count(count: &AtomicUsize, more: usize) {
        count.fetch_add(more, Ordering::Relaxed);
    }

    /// Whether there was something to lose and to strand in so many cuts.
    pub(super) fn check(&self, cuts: usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        assert!(of(&self.cuts) >= cuts && of(&self.partly) >= cuts / 40, "{self:?}");
        for count in [&self.given_back, &self.kept, &self.accepted] {
            assert!(of(count) >= cuts / 8, "{self:?}");
        }
        assert!(of(&self.acknowledged) >= cuts / 16 && of(&self.unknown) > 0, "{self:?}");
        assert!(of(&self.kept_in_vain) <= of(&self.kept) / 10, "{self:?}");
    }
}

impl Books {
    pub(super) fn new() -> Self {
        let mut dice = Dice(7);
        let filling = (0..2 * KIB / 16).map(|_| format!("{:016x}", dice.roll())).collect();
        Self { next: AtomicU64::new(1), filling, tally: Tally::default() }
    }

    /// A new message: its number, and a payload of this length.
    pub(super) fn message(&self, len: usize) -> (u64, Vec<u8>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut payload = number.to_be_bytes().to_vec();
        while payload.len() < len {
            let rest = len - payload.len();
            payload.extend_from_slice(&self.filling.as_bytes()[..rest.min(self.filling.len())]);
        }
        (number, payload)
    }

    /// Which message it is; all of it.
    pub(super) fn number(envelope: &Envelope) -> u64 {
        assert!(envelope.is_whole(), "not as it was sent: {}", envelope.msg_id);
        u64::from_be_bytes(*envelope.payload_b64.0.first_chunk().expect("a number"))
    }
}

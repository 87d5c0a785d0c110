//! A small generator of random numbers (splitmix64). Invariant: the same seed gives the same
//! numbers, so that a message can be made again from its number, to compare.

use std::time::Duration;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream that depends on both numbers.
    pub(crate) const fn of(seed: u64, number: u64) -> Self {
        Self(Self(seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93)).next_state().1)
    }

    /// A seed that nobody chose.
    pub(crate) fn fresh_seed() -> u64 {
        getrandom::u64().expect("the operating system has random numbers")
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        let (state, number) = self.next_state();
        self.0 = state;
        number
    }

    /// A number from 0 to `bound - 1`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True this often in a hundred.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// A time from `least` to `most` milliseconds, to the microsecond.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(least * 1000 + self.below((most - least) * 1000 + 1))
    }

    const fn next_state(&self) -> (u64, u64) {
        let state = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (state, mixed ^ (mixed >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_for_its_seed_and_differs_for_another() {
        let numbers = |seed, number| {
            let mut random = Random::of(seed, number);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }

    #[test]
    fn a_time_is_within_its_bounds() {
        let mut random = Random::of(7, 0);
        for _ in 0..1000 {
            let time = random.millis(1, 3);
            assert!((1000..=3000).contains(&time.as_micros()), "{time:?}");
        }
    }
}

//! What a power cut does to what is not durable, all of it decided by a seed.

use super::file::{FileFate, SECTOR_LEN};
use super::pages::PAGE_LEN;

/// A source of decisions. The same seed makes the same ones.
pub(super) struct Fate {
    random: u64,
    whole: Option<Whole>,
}

/// The same for all files and directories.
#[derive(Clone, Copy)]
enum Whole {
    Nothing,
    Everything,
}

impl Fate {
    pub(super) fn new(seed: u64) -> Self {
        let mut fate = Self { random: seed, whole: None };
        fate.whole = match (seed, fate.below(16)) {
            (0, _) => Some(Whole::Nothing),
            (1, _) => Some(Whole::Everything),
            (_, 0) => Some(Whole::Nothing),
            (_, 1) => Some(Whole::Everything),
            _ => None,
        };
        fate
    }

    /// A number less than `end`, which is not zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64: neighbouring seeds give unrelated numbers.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(super) fn of_file(&mut self) -> FileFate {
        match self.whole {
            Some(Whole::Nothing) => return FileFate::Nothing,
            Some(Whole::Everything) => return FileFate::Everything,
            None => {}
        }
        let grain = SECTOR_LEN;
        match self.below(8) {
            0 => FileFate::Nothing,
            1 => FileFate::Everything,
            2 => FileFate::Prefix,
            3 => FileFate::Scattered { grain: PAGE_LEN as u64, sixteenths: 8 },
            4 => FileFate::Scattered { grain, sixteenths: 2 },
            5 => FileFate::Scattered { grain, sixteenths: 14 },
            // One or two that are missing among many are the hardest to notice.
            6 => FileFate::Scattered { grain, sixteenths: 15 },
            _ => FileFate::Scattered { grain, sixteenths: 8 },
        }
    }

    /// How many of `count` changes to a directory came through.
    pub(super) fn of_changes(&mut self, count: usize) -> usize {
        match self.whole {
            Some(Whole::Nothing) => return 0,
            Some(Whole::Everything) => return count,
            None => {}
        }
        match self.below(3) {
            0 => 0,
            1 => count,
            _ => usize::try_from(self.below(count as u64 + 1)).expect("it is at most the count"),
        }
    }
}

//! How long syncs take, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in microseconds; what takes longer is counted behind the last one.
const BOUNDS: [u64; 15] = [
    50, 100, 200, 400, 800, 1_500, 3_000, 6_000, 12_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000,
];

/// A histogram of how long syncs took.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// What a histogram holds: the sum in seconds, how many, and how many in each bucket.
pub(crate) type Sums = (f64, u64, Vec<(f64, u64)>);

impl Syncs {
    pub(super) fn note(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS.partition_point(|bound| *bound < micros);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Several histograms as one.
    pub(crate) fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Sums {
        let bounds = BOUNDS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::MAX]);
        let mut buckets: Vec<(f64, u64)> = bounds.map(|bound| (bound, 0)).collect();
        let mut nanos = 0_u64;
        for syncs in all {
            for (bucket, count) in buckets.iter_mut().zip(&syncs.counts) {
                bucket.1 += count.load(Ordering::Relaxed);
            }
            nanos = nanos.saturating_add(syncs.nanos.load(Ordering::Relaxed));
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        (nanos as f64 / 1e9, count, buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_counted_in_the_bucket_that_it_fits_into() {
        let syncs = Syncs::default();
        for micros in [1, 50, 51, 900, 5_000_000] {
            syncs.note(Duration::from_micros(micros));
        }
        let (sum, count, buckets) = Syncs::sum([&syncs, &Syncs::default()]);
        assert_eq!((count, buckets[0].1, buckets[1].1, buckets[5].1), (5, 2, 1, 1));
        assert_eq!(buckets.last().map(|(_, count)| *count), Some(1));
        assert!((sum - 5.001_002).abs() < 1e-9, "{sum}");
    }
}

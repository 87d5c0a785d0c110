//! How far deliveries are out of order: of messages that are delivered for the first time, how many
//! that were sent later were delivered before.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use mailbox::{Name, Timestamp};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Deliveries of a shard that are remembered: more out of order than this is not counted.
const REMEMBERED: usize = 64;

/// The worst that was seen, for each shard.
#[derive(Debug)]
pub(crate) struct Reorder {
    shards: Vec<Shard>,
}

#[derive(Debug, Default)]
struct Shard {
    worst: AtomicU64,
    /// Which mailbox, and when it was sent, of the last first deliveries.
    last: Mutex<VecDeque<(u64, i64)>>,
}

impl Reorder {
    pub(crate) fn new(shards: u32) -> Self {
        Self { shards: (0..shards).map(|_| Shard::default()).collect() }
    }

    /// A message was delivered for the first time.
    pub(crate) fn note(&self, shard: u32, mailbox: &Name, sent: Timestamp) {
        let Some(shard) = self.shards.get(shard as usize) else { return };
        let mut hasher = DefaultHasher::new();
        mailbox.as_str().hash(&mut hasher);
        let (mailbox, sent) = (hasher.finish(), sent.as_unix_millis());
        let mut last = shard.last.lock();
        let later = last.iter().filter(|(of, at)| *of == mailbox && *at > sent).count() as u64;
        if last.len() == REMEMBERED {
            last.pop_front();
        }
        last.push_back((mailbox, sent));
        drop(last);
        shard.worst.fetch_max(later, Ordering::Relaxed);
    }
}

impl Collector for Reorder {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Most later messages delivered before an earlier one";
        let mut family =
            encoder.encode_descriptor("reorder_depth_max", help, None, MetricType::Gauge)?;
        for (number, shard) in self.shards.iter().enumerate() {
            let worst = i64::try_from(shard.worst.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
            let labels = [("shard", number.to_string())];
            ConstGauge::new(worst).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_those_that_overtook_it() {
        let reorder = Reorder::new(1);
        let mailbox = Name::parse("jobs").unwrap();
        let at = Timestamp::from_unix_millis;
        for millis in [1, 2, 4, 5, 5, 3] {
            reorder.note(0, &mailbox, at(millis));
        }
        assert_eq!(reorder.shards[0].worst.load(Ordering::Relaxed), 3);
        reorder.note(0, &Name::parse("other").unwrap(), at(0));
        assert_eq!(reorder.shards[0].worst.load(Ordering::Relaxed), 3);
        reorder.note(7, &mailbox, at(0));
    }
}

//! How often, and how much in all. Invariant: everything made from one capability shares its
//! counts; an allowance that is used up does not come back because memory is short.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mailbox_wire::capability::{Grant, Quotas, Rate, Refused, TokenId};
use parking_lot::Mutex;

/// Most capabilities whose use is counted at a time.
const MOST: usize = 65_536;
/// A capability may be used this many times its rate at once, after a pause.
const BURST: u64 = 2;

/// What is counted of capabilities that have a rate or a quota.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    rates: Mutex<HashMap<(TokenId, Rate), Arc<Bucket>>>,
    spent: Mutex<HashMap<TokenId, Arc<Spent>>>,
}

/// What one capability has used in all.
#[derive(Debug, Default)]
struct Spent {
    ops: AtomicU64,
    bytes: AtomicU64,
}

/// Lets through `rate` in the long run, and a burst after a pause.
#[derive(Debug)]
struct Bucket {
    /// Time that one use takes, in nanoseconds.
    each: u64,
    /// Uses that may come at once.
    burst: u64,
    start: Instant,
    /// Up to when, after the start, everything is used up; nanoseconds.
    used_until: Mutex<u64>,
}

/// The counts of one capability.
#[derive(Debug)]
pub(crate) struct Meters {
    buckets: Vec<Arc<Bucket>>,
    quotas: Quotas,
    spent: Option<Arc<Spent>>,
}

impl Buckets {
    /// The counts of a capability, shared with all that were made from it.
    pub(super) fn meters(&self, token_id: &TokenId, grant: &Grant) -> Result<Meters, Refused> {
        let quotas = grant.quotas();
        let needs_spent = quotas.ops.is_some() || quotas.bytes.is_some();
        let spent = if needs_spent { Some(self.spent(token_id)?) } else { None };
        // Each once, and in one order whoever asks: they are locked together.
        let mut rates = grant.rates().to_vec();
        rates.sort_by_key(|rate| (rate.per.as_millis(), rate.times));
        rates.dedup();
        let buckets = rates.into_iter().map(|rate| self.bucket(token_id, rate)).collect();
        Ok(Meters { buckets, quotas, spent })
    }

    fn spent(&self, token_id: &TokenId) -> Result<Arc<Spent>, Refused> {
        let mut spent = self.spent.lock();
        if spent.len() >= MOST && !spent.contains_key(token_id) {
            return Err(Refused::Quota);
        }
        Ok(Arc::clone(spent.entry(token_id.clone()).or_default()))
    }

    fn bucket(&self, token_id: &TokenId, rate: Rate) -> Arc<Bucket> {
        let mut rates = self.rates.lock();
        if rates.len() >= MOST {
            // Those that are full again are as good as new ones.
            let now = Instant::now();
            rates.retain(|_, bucket| !bucket.is_full(now));
        }
        let new = || Arc::new(Bucket::new(rate));
        if rates.len() >= MOST {
            return new();
        }
        Arc::clone(rates.entry((token_id.clone(), rate)).or_insert_with(new))
    }
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        let times = u64::from(rate.times.get());
        Self {
            each: rate.per.as_millis() * 1_000_000 / times,
            burst: times * BURST,
            start: Instant::now(),
            used_until: Mutex::new(0),
        }
    }

    fn elapsed(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    fn is_full(&self, now: Instant) -> bool {
        *self.used_until.lock() <= self.elapsed(now)
    }

    /// Up to when everything is used up after so many uses more; or after how long they may come.
    fn after(&self, used_until: u64, uses: u64, now: Instant) -> Result<u64, Duration> {
        let now = self.elapsed(now);
        // More than fit in at all count as all that fit: else they would never get through.
        let cost = self.each * uses.clamp(1, self.burst);
        let until = used_until.max(now) + cost;
        let (ahead, most) = (until - now, self.each * self.burst);
        if ahead > most {
            return Err(Duration::from_nanos(ahead - most));
        }
        Ok(until)
    }
}

/// Why something is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// It has used up what it may use in all.
    Spent,
    /// It comes too often; after this long it may.
    For(Duration),
}

impl Meters {
    /// Counts a use of so many operations and bytes.
    pub(crate) fn charge(&self, ops: u64, bytes: u64, now: Instant) -> Result<(), Held> {
        // What is refused costs nothing: first whether all of them let it through.
        let mut used: Vec<_> = self.buckets.iter().map(|bucket| bucket.used_until.lock()).collect();
        let each = self.buckets.iter().zip(&used);
        let until: Result<Vec<u64>, Duration> =
            each.map(|(bucket, used)| bucket.after(**used, ops, now)).collect();
        let until = until.map_err(Held::For)?;
        if let Some(spent) = &self.spent {
            add(&spent.ops, ops, self.quotas.ops)?;
            if let Err(held) = add(&spent.bytes, bytes, self.quotas.bytes) {
                spent.ops.fetch_sub(ops, Ordering::Relaxed);
                return Err(held);
            }
        }
        used.iter_mut().zip(until).for_each(|(used, until)| **used = until);
        Ok(())
    }
}

/// Adds to a count unless that would be more than allowed.
fn add(count: &AtomicU64, more: u64, most: Option<u64>) -> Result<(), Held> {
    let within = |so_far: u64| {
        let sum = so_far.saturating_add(more);
        most.is_none_or(|most| sum <= most).then_some(sum)
    };
    let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
    added.map(drop).map_err(|_| Held::Spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let bucket = Arc::new(Bucket::new("10/s".parse().unwrap()));
        let start = bucket.start;
        let meters = Meters { buckets: vec![bucket], quotas: Quotas::default(), spent: None };
        for _ in 0..20 {
            meters.charge(1, 0, start).unwrap();
        }
        assert_eq!(meters.charge(1, 0, start), Err(Held::For(Duration::from_millis(100))));
        let later = start + Duration::from_millis(100);
        meters.charge(1, 0, later).unwrap();
        assert!(meters.charge(1, 0, later).is_err());
        // A batch larger than the burst waits until everything is free.
        assert!(meters.charge(1000, 0, later + Duration::from_millis(1900)).is_err());
        meters.charge(1000, 0, later + Duration::from_secs(2)).unwrap();
    }

    #[test]
    fn a_quota_is_never_exceeded_and_a_refused_use_costs_nothing() {
        let quotas = Quotas { ops: Some(3), bytes: Some(10) };
        let spent = Some(Arc::<Spent>::default());
        let meters = Meters { buckets: Vec::new(), quotas, spent };
        let now = Instant::now();
        meters.charge(1, 8, now).unwrap();
        assert_eq!(meters.charge(1, 3, now), Err(Held::Spent));
        meters.charge(1, 2, now).unwrap();
        assert_eq!(meters.charge(2, 0, now), Err(Held::Spent));
        meters.charge(1, 0, now).unwrap();
        assert_eq!(meters.charge(1, 0, now), Err(Held::Spent));
    }

    #[test]
    fn buckets_are_locked_once_and_in_one_order() {
        let buckets = Buckets::default();
        let token_id: TokenId = "one".parse().unwrap();
        let key = mailbox_wire::capability::RootKey::from_bytes([7; 32]);
        let grant = |rates: &[&str]| {
            let caveats: Vec<_> = ["exp = 9000-01-01T00:00:00Z"]
                .iter()
                .chain(rates)
                .map(|text| text.parse().unwrap())
                .collect();
            let kid = "k".parse().unwrap();
            let capability =
                mailbox_wire::capability::Capability::mint(&key, &kid, &token_id, &caveats);
            capability.unwrap().verify(Some(&key)).unwrap()
        };
        let (one, other, twice) =
            (["rate = 5/s", "rate = 7/m"], ["rate = 7/m", "rate = 5/s"], ["rate = 5/s"; 2]);
        let meters = [&one[..], &other, &twice]
            .map(|rates| buckets.meters(&token_id, &grant(rates)).unwrap());
        let same = |(a, b): (&Arc<Bucket>, &Arc<Bucket>)| Arc::ptr_eq(a, b);
        assert!(meters[0].buckets.iter().zip(&meters[1].buckets).all(same));
        assert_eq!(meters.each_ref().map(|it| it.buckets.len()), [2, 2, 1]);
        meters[2].charge(1, 0, Instant::now()).unwrap();
    }
}

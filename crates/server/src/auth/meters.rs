//! What is counted of each capability. Invariant: everything made from one capability shares its
//! counts; an allowance that is used up does not come back because memory is short: whoever cannot
//! be counted is refused.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::Timestamp;
use mailbox_wire::capability::{Grant, Quotas, Rate, Refused, TokenId};
use parking_lot::Mutex;

use super::bucket::Bucket;
use super::spent::{Spent, UsedUp};

/// Most capabilities whose use is counted at a time.
const MOST: usize = 65_536;
/// Most rates of one capability, with all that were narrowed from it: anybody can narrow.
const RATES: usize = 16;
/// No oftener than this are those looked for that need not be counted any more.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is counted of capabilities that have a rate or a quota.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    rates: Mutex<Table<Rates>>,
    spent: Mutex<Table<Arc<Spent>>>,
}

/// The rates of a capability and of all that were narrowed from it.
type Rates = Vec<(Rate, Arc<Bucket>)>;

/// Counts of capabilities.
#[derive(Debug)]
struct Table<T> {
    by_id: HashMap<TokenId, T>,
    looked: Option<Instant>,
}

/// The counts of one capability.
#[derive(Debug)]
pub(crate) struct Meters {
    buckets: Vec<Arc<Bucket>>,
    quotas: Quotas,
    spent: Option<Arc<Spent>>,
}

/// Why something is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// It has used up what it may use in all.
    Spent,
    /// It comes too often; after this long it may.
    For(Duration),
}

/// How much more would be let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { by_id: HashMap::new(), looked: None }
    }
}

impl<T> Table<T> {
    /// Whether there is a place for this one, after others were forgotten if need be.
    fn has_place(&mut self, id: &TokenId, is_needed: impl Fn(&T) -> bool) -> bool {
        if self.by_id.len() < MOST || self.by_id.contains_key(id) {
            return true;
        }
        let now = Instant::now();
        let is_long_ago = |at: Instant| now.saturating_duration_since(at) >= LOOK_EVERY;
        if self.looked.is_none_or(is_long_ago) {
            self.looked = Some(now);
            self.by_id.retain(|_, it| is_needed(it));
        }
        self.by_id.len() < MOST
    }
}

impl Buckets {
    /// The counts of a capability, shared with all that were made from it.
    pub(super) fn meters(&self, token_id: &TokenId, grant: &Grant) -> Result<Meters, Refused> {
        let quotas = grant.quotas();
        let needs_spent = quotas.ops.is_some() || quotas.bytes.is_some();
        let spent = if needs_spent { Some(self.spent(token_id, grant)?) } else { None };
        // Each once, and in one order whoever asks: they are locked together.
        let mut rates = grant.rates().to_vec();
        rates.sort_by_key(|rate| (rate.per.as_millis(), rate.times));
        rates.dedup();
        let buckets = if rates.is_empty() { Vec::new() } else { self.buckets(token_id, &rates)? };
        Ok(Meters { buckets, quotas, spent })
    }

    fn spent(&self, token_id: &TokenId, grant: &Grant) -> Result<Arc<Spent>, Refused> {
        let mut table = self.spent.lock();
        let now = Timestamp::now().as_unix_millis();
        if !table.has_place(token_id, |it| !it.is_over(now)) {
            return Err(Refused::Quota);
        }
        let spent = table.by_id.entry(token_id.clone()).or_default();
        spent.note(grant);
        Ok(Arc::clone(spent))
    }

    fn buckets(&self, token_id: &TokenId, rates: &[Rate]) -> Result<Vec<Arc<Bucket>>, Refused> {
        let now = Instant::now();
        let mut table = self.rates.lock();
        // Those that are full again are as good as new ones.
        let is_needed = |known: &Rates| known.iter().any(|it| is_in_use(&it.1, now));
        if !table.has_place(token_id, is_needed) {
            return Err(Refused::Rate);
        }
        let known = table.by_id.entry(token_id.clone()).or_default();
        let mut buckets = Vec::with_capacity(rates.len());
        for rate in rates {
            if let Some((_, bucket)) = known.iter().find(|(known, _)| known == rate) {
                buckets.push(Arc::clone(bucket));
                continue;
            }
            if known.len() >= RATES {
                known.retain(|(_, bucket)| is_in_use(bucket, now));
            }
            if known.len() >= RATES {
                return Err(Refused::Rate);
            }
            let bucket = Arc::new(Bucket::new(*rate));
            known.push((*rate, Arc::clone(&bucket)));
            buckets.push(bucket);
        }
        Ok(buckets)
    }
}

/// Whether a new one in its place would count anew: somebody has it, or it is not full. Whoever has
/// one got it under the lock of the table.
fn is_in_use(bucket: &Arc<Bucket>, now: Instant) -> bool {
    Arc::strong_count(bucket) > 1 || !bucket.is_full(now)
}

impl Meters {
    /// Counts what was done already, whether it was allowed or not.
    pub(crate) fn count(&self, ops: u64, bytes: u64) {
        let now = if self.is_free() { return } else { Instant::now() };
        for bucket in &self.buckets {
            bucket.count(ops, now);
        }
        if let Some(spent) = &self.spent {
            spent.count(ops, bytes);
        }
    }

    /// Counts a use of so many operations and bytes.
    pub(crate) fn charge(&self, ops: u64, bytes: u64) -> Result<(), Held> {
        // Most have neither: they need not even know what time it is.
        if self.is_free() { Ok(()) } else { self.charge_at(ops, bytes, Instant::now()) }
    }

    /// Whether one operation would be let through now.
    pub(crate) fn check(&self) -> Result<(), Held> {
        if self.is_free() { Ok(()) } else { self.check_at(Instant::now()) }
    }

    /// The same for settling, which is held only if too many settlements have failed.
    pub(crate) fn check_settling(&self) -> Result<(), Held> {
        let now = if self.buckets.is_empty() { return Ok(()) } else { Instant::now() };
        self.buckets.iter().try_for_each(|bucket| bucket.check_miss(now)).map_err(Held::For)
    }

    /// How much more would be let through now; nothing if there is no bound.
    pub(crate) fn left(&self) -> Option<Left> {
        if self.is_free() {
            return None;
        }
        let now = Instant::now();
        let (ops, bytes) =
            self.spent.as_ref().map_or((u64::MAX, u64::MAX), |it| it.left(self.quotas));
        let by_rate = self.buckets.iter().map(|bucket| bucket.left(now));
        Some(Left { ops: by_rate.fold(ops, u64::min), bytes })
    }

    /// So many settlements have failed.
    pub(crate) fn miss(&self, count: u64) {
        for bucket in &self.buckets {
            bucket.miss(count, Instant::now());
        }
    }

    /// Nothing was done for what was charged: the quota has it back.
    pub(crate) fn give_back(&self, ops: u64, bytes: u64) {
        if let Some(spent) = &self.spent {
            spent.give_back(ops, bytes);
        }
    }

    /// What is left of the quota is too little for the smallest thing there is to do.
    pub(crate) fn use_up(&self) {
        if let Some(spent) = &self.spent {
            spent.use_up(self.quotas);
        }
    }

    /// Whether nothing is counted.
    pub(crate) fn is_free(&self) -> bool {
        self.buckets.is_empty() && self.spent.is_none()
    }

    fn charge_at(&self, ops: u64, bytes: u64, now: Instant) -> Result<(), Held> {
        // What is refused costs nothing: first whether all of them let it through. Bytes alone
        // are none of their business.
        let buckets = if ops == 0 { &[][..] } else { &self.buckets };
        let mut used: Vec<_> = buckets.iter().map(|bucket| bucket.uses()).collect();
        let each = buckets.iter().zip(&used);
        let after: Result<Vec<_>, Duration> =
            each.map(|(bucket, used)| bucket.after(**used, ops, now)).collect();
        let after = after.map_err(Held::For)?;
        if let Some(spent) = &self.spent {
            spent.add(ops, bytes, self.quotas).map_err(|UsedUp| Held::Spent)?;
        }
        used.iter_mut().zip(after).for_each(|(used, after)| **used = after);
        Ok(())
    }

    fn check_at(&self, now: Instant) -> Result<(), Held> {
        let left = self.spent.as_ref().map_or((1, 1), |spent| spent.left(self.quotas));
        if left.0 == 0 || left.1 == 0 {
            return Err(Held::Spent);
        }
        self.buckets.iter().try_for_each(|bucket| bucket.check(now)).map_err(Held::For)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(token_id: &TokenId, texts: &[&str]) -> Grant {
        use mailbox_wire::capability::{Capability, RootKey};
        let key = RootKey::from_bytes([7; 32]);
        let caveats: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let capability = Capability::mint(&key, &"k".parse().unwrap(), token_id, &caveats);
        capability.unwrap().verify(Some(&key)).unwrap()
    }

    const PAST: &str = "exp = 2001-01-01T00:00:00Z";
    const FUTURE: &str = "exp = 9000-01-01T00:00:00Z";

    fn meters(texts: &[&str]) -> Meters {
        let id = "one".parse().unwrap();
        Buckets::default().meters(&id, &grant(&id, &[&[FUTURE], texts].concat())).unwrap()
    }

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let meters = meters(&["rate = 10/s"]);
        let start = Instant::now();
        for left in (0..20).rev() {
            meters.charge_at(1, 0, start).unwrap();
            assert_eq!(meters.buckets[0].left(start), left);
        }
        let Err(Held::For(time)) = meters.charge_at(1, 0, start) else { panic!("let through") };
        assert!(time <= Duration::from_millis(100), "{time:?}");
        let later = start + Duration::from_millis(100);
        meters.charge_at(1, 0, later).unwrap();
        assert!(meters.charge_at(1, 0, later).is_err());
        // A batch larger than the burst waits until everything is free.
        assert!(meters.charge_at(1000, 0, later + Duration::from_millis(1800)).is_err());
        let free = later + Duration::from_secs(2);
        meters.charge_at(1000, 0, free).unwrap();
        // All of it counts: the next one comes when a thousand could have come one by one.
        let Err(Held::For(time)) = meters.check_at(free) else { panic!("let through") };
        assert_eq!(time, Duration::from_millis(98_100));
        assert_eq!(meters.buckets[0].left(free), 0);
        meters.charge_at(0, 7, free).unwrap();
        meters.charge_at(1, 0, free + time).unwrap();
    }

    #[test]
    fn settling_is_held_only_after_many_settlements_that_failed() {
        let meters = meters(&["rate = 1/h"]);
        meters.charge(100, 0).unwrap();
        assert!(meters.check().is_err() && meters.check_settling().is_ok());
        meters.miss(1);
        assert!(meters.check_settling().is_ok());
        meters.miss(1);
        assert!(matches!(meters.check_settling(), Err(Held::For(_))));
    }

    #[test]
    fn a_quota_is_never_exceeded_and_a_refused_use_costs_nothing() {
        let meters = meters(&["quota_ops = 3", "quota_bytes = 10"]);
        meters.charge(1, 8).unwrap();
        assert_eq!(meters.charge(1, 3), Err(Held::Spent));
        assert_eq!(meters.left(), Some(Left { ops: 2, bytes: 2 }));
        meters.charge(1, 2).unwrap();
        assert_eq!(meters.check(), Err(Held::Spent));
        meters.give_back(1, 2);
        assert_eq!(meters.charge(3, 0), Err(Held::Spent));
        meters.check().unwrap();
        meters.charge(2, 1).unwrap();
        assert_eq!(meters.charge(1, 0), Err(Held::Spent));
        meters.give_back(1, 0);
        meters.use_up();
        assert_eq!(meters.check(), Err(Held::Spent));
    }

    #[test]
    fn buckets_are_locked_once_and_in_one_order() {
        let buckets = Buckets::default();
        let token_id: TokenId = "one".parse().unwrap();
        let grant = |rates: &[&str]| grant(&token_id, &[&[FUTURE], rates].concat());
        let (one, other, twice) =
            (["rate = 5/s", "rate = 7/m"], ["rate = 7/m", "rate = 5/s"], ["rate = 5/s"; 2]);
        let meters = [&one[..], &other, &twice]
            .map(|rates| buckets.meters(&token_id, &grant(rates)).unwrap());
        let same = |(a, b): (&Arc<Bucket>, &Arc<Bucket>)| Arc::ptr_eq(a, b);
        assert!(meters[0].buckets.iter().zip(&meters[1].buckets).all(same));
        assert_eq!(meters.each_ref().map(|it| it.buckets.len()), [2, 2, 1]);
        meters[2].charge(1, 0).unwrap();
    }

    #[test]
    fn one_capability_has_no_more_than_so_many_rates_however_it_is_narrowed() {
        let buckets = Buckets::default();
        let id: TokenId = "one".parse().unwrap();
        let narrowed = |times: usize| {
            let meters = buckets.meters(&id, &grant(&id, &[FUTURE, &format!("rate = {times}/h")]));
            meters.inspect(|meters| meters.charge(1, 0).unwrap())
        };
        let first = narrowed(1).unwrap();
        for times in 2..=RATES {
            narrowed(times).unwrap();
        }
        assert_eq!(narrowed(RATES + 1).unwrap_err(), Refused::Rate);
        assert!(Arc::ptr_eq(&narrowed(1).unwrap().buckets[0], &first.buckets[0]));
        // Others are not concerned.
        let other: TokenId = "other".parse().unwrap();
        buckets.meters(&other, &grant(&other, &[FUTURE, "rate = 1/h"])).unwrap();
    }

    #[test]
    fn a_rate_that_is_in_use_is_not_made_anew_by_narrowing() {
        let buckets = Buckets::default();
        let id: TokenId = "one".parse().unwrap();
        let narrowed = |rates: &[String]| {
            let rates: Vec<&str> = [FUTURE, "rate = 1/h"]
                .into_iter()
                .chain(rates.iter().map(String::as_str))
                .collect();
            buckets.meters(&id, &grant(&id, &rates))
        };
        let first = narrowed(&[]).unwrap();
        // Many rates that nobody uses, and that are full at once.
        for turn in 0..RATES {
            drop(narrowed(&[format!("rate = {}/s", 1000 + turn)]));
        }
        let second = narrowed(&["rate = 2000/s".to_owned()]).unwrap();
        assert!(second.buckets.iter().any(|bucket| Arc::ptr_eq(bucket, &first.buckets[0])));
    }

    #[test]
    fn whoever_cannot_be_counted_is_refused_and_what_has_expired_is_forgotten() {
        let buckets = Buckets::default();
        let id = |number: usize| -> TokenId { format!("t{number}").parse().unwrap() };
        let meters =
            |number: usize, texts: &[&str]| buckets.meters(&id(number), &grant(&id(number), texts));
        for number in 0..MOST {
            let exp = if number == 7 { PAST } else { FUTURE };
            let meters = meters(number, &[exp, "quota_ops = 5", "rate = 1/h"]).unwrap();
            meters.charge(1, 0).unwrap();
        }
        meters(MOST, &[FUTURE, "quota_ops = 5"]).expect("in place of the one that has expired");
        let later = MOST + 1;
        assert_eq!(meters(later, &[FUTURE, "quota_ops = 5"]).unwrap_err(), Refused::Quota);
        assert_eq!(meters(later, &[FUTURE, "rate = 1/h"]).unwrap_err(), Refused::Rate);
        // One that is counted already goes on being counted.
        let known = meters(0, &[FUTURE, "quota_ops = 5"]).unwrap();
        assert_eq!(known.charge(5, 0), Err(Held::Spent));
    }
}

//! What is in the store, mailbox by mailbox, as it was when somebody last looked. The busiest
//! mailboxes have series of their own; the rest are one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use mailbox::{Backend, DeadReason, Name, Peek, Policy, Stats};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::calls::shard;

/// Mailboxes with series of their own.
const OWN_SERIES: usize = 128;
/// Most mailboxes that are looked at.
const LOOKED_AT: usize = 10_000;
/// Mailboxes that are read from the store at a time.
const PAGE: usize = 256;
/// Mailboxes that are looked at side by side.
const AT_ONCE: usize = 16;
/// How long a survey is good: those who look more often see the same.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How long a survey may take; what was not looked at by then is left out.
const WITHIN: Duration = Duration::from_secs(5);
/// What mailboxes without series of their own are counted under.
const OTHER: &str = "other";

/// A look at all mailboxes.
#[derive(Debug)]
pub(crate) struct Survey {
    /// `durable` or `ephemeral`.
    profile: &'static str,
    state: Mutex<State>,
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    at: Option<Instant>,
    rows: Vec<Row>,
    /// What dead letters died of, as far as it was counted.
    deaths: HashMap<String, Deaths>,
    figures: Vec<mailbox::Figure>,
}

/// What is known of one mailbox.
#[derive(Debug, Clone)]
struct Row {
    topic: String,
    shard: u32,
    stats: Stats,
    max_size: Option<u64>,
}

/// Dead letters of one mailbox.
#[derive(Debug, Clone, Default)]
struct Deaths {
    /// The last one counted.
    order: Option<u64>,
    by_reason: [u64; DeadReason::ALL.len()],
}

impl Survey {
    pub(crate) fn new(profile: &'static str) -> Self {
        Self { profile, state: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Looks at the store, unless somebody just did.
    pub(crate) async fn renew(&self, store: &Arc<dyn Backend>, shards: u32) {
        let _turn = self.turn.lock().await;
        if self.state.lock().at.is_some_and(|at| at.elapsed() < GOOD_FOR) {
            return;
        }
        let rows = tokio::time::timeout(WITHIN, rows(store, shards)).await.unwrap_or_default();
        let rows = busiest(rows);
        let named: Vec<&Row> = rows.iter().filter(|row| row.topic != OTHER).collect();
        let mut deaths = std::mem::take(&mut self.state.lock().deaths);
        deaths.retain(|topic, _| named.iter().any(|row| row.topic == *topic));
        for row in named {
            if row.stats.totals.dead_lettered == 0 && row.stats.dead == 0 {
                continue;
            }
            let known = deaths.entry(row.topic.clone()).or_default();
            count_deaths(store, &row.topic, known).await;
        }
        let figures = store.figures();
        let mut state = self.state.lock();
        (state.at, state.rows, state.deaths) = (Some(Instant::now()), rows, deaths);
        state.figures = figures;
    }
}

async fn rows(store: &Arc<dyn Backend>, shards: u32) -> Vec<Row> {
    let (mut names, mut after) = (Vec::new(), None::<Name>);
    while names.len() < LOOKED_AT {
        let Ok(page) = store.list(after.as_ref(), PAGE).await else { break };
        let Some(last) = page.last().cloned() else { break };
        names.extend(page);
        after = Some(last);
    }
    let look = |name: Name| async move {
        let stats = store.stats(&name).await.ok()?;
        let max_size = store.policy(&name).await.ok().and_then(|policy: Policy| policy.max_size);
        let shard = shard(name.as_str(), None, shards);
        Some(Row { topic: name.to_string(), shard, stats, max_size })
    };
    let looks = stream::iter(names).map(look).buffer_unordered(AT_ONCE);
    looks.filter_map(std::future::ready).collect().await
}

/// Those that have had the most to do, and one row for all others.
fn busiest(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| {
        let totals = &row.stats.totals;
        (std::cmp::Reverse(totals.sent + totals.delivered + row.stats.live()), row.topic.clone())
    });
    if rows.len() <= OWN_SERIES {
        return rows;
    }
    let rest = rows.split_off(OWN_SERIES);
    let mut sum = Stats::default();
    for row in rest {
        let (stats, totals) = (row.stats, row.stats.totals);
        sum.delayed += stats.delayed;
        sum.ready += stats.ready;
        sum.invisible += stats.invisible;
        sum.dead += stats.dead;
        sum.dedup_entries += stats.dedup_entries;
        sum.totals.redelivered += totals.redelivered;
        sum.totals.timed_out += totals.timed_out;
        sum.totals.retention_dropped += totals.retention_dropped;
    }
    rows.push(Row { topic: OTHER.to_owned(), shard: 0, stats: sum, max_size: None });
    rows
}

/// Counts what dead letters died of that were not counted yet.
async fn count_deaths(store: &Arc<dyn Backend>, topic: &str, known: &mut Deaths) {
    const PAGES: usize = 4;

    let Ok(mailbox) = Name::parse(topic) else { return };
    for _ in 0..PAGES {
        let request = Peek::Dead { after: known.order, limit: 256 };
        let Ok(page) = store.peek(&mailbox, &request).await else { return };
        let count = page.len();
        for death in page.into_iter().filter_map(|record| record.death) {
            known.order = known.order.max(Some(death.order));
            let reason = DeadReason::ALL.iter().position(|reason| *reason == death.reason);
            if let Some(reason) = reason {
                known.by_reason[reason] += 1;
            }
        }
        if count < 256 {
            return;
        }
    }
}

impl Collector for Survey {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.state.lock();
        let rows = &state.rows;
        gauge(&mut encoder, "queue_depth", "Messages that wait", rows, |row| {
            row.stats.ready + row.stats.delayed
        })?;
        gauge(&mut encoder, "inflight", "Messages in flight", rows, |row| row.stats.invisible)?;
        saturation(&mut encoder, rows)?;
        let mut family =
            encoder.encode_descriptor("dlq_depth", "Dead letters", None, MetricType::Gauge)?;
        for row in rows {
            let labels = [("topic", row.topic.as_str()), ("dlq_profile", self.profile)];
            ConstGauge::new(whole(row.stats.dead)).encode(family.encode_family(&labels)?)?;
        }
        by_topic(
            &mut encoder,
            "dedup_entries",
            "Keys remembered",
            MetricType::Gauge,
            rows,
            |row| row.stats.dedup_entries,
        )?;
        let help = "Deliveries that were not a message's first";
        by_topic(&mut encoder, "redelivered", help, MetricType::Counter, rows, |row| {
            row.stats.totals.redelivered
        })?;
        let help = "Deliveries that ended by their deadline";
        by_topic(&mut encoder, "visibility_timeout", help, MetricType::Counter, rows, |row| {
            row.stats.totals.timed_out
        })?;
        deaths(&mut encoder, &state.deaths)?;
        let help = "Dead letters dropped by retention";
        let mut family =
            encoder.encode_descriptor("retention_dropped", help, None, MetricType::Counter)?;
        for row in rows {
            let labels = [("topic", row.topic.as_str()), ("state", "dead")];
            let dropped = row.stats.totals.retention_dropped;
            ConstCounter::new(dropped).encode(family.encode_family(&labels)?)?;
        }
        figures(&mut encoder, &state.figures)
    }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[Row],
    value: impl Fn(&Row) -> u64,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for row in rows {
        let labels = [("topic", row.topic.clone()), ("shard", row.shard.to_string())];
        ConstGauge::new(whole(value(row))).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn saturation(encoder: &mut DescriptorEncoder<'_>, rows: &[Row]) -> fmt::Result {
    let help = "How full a mailbox is, from 0 to 1";
    let mut family = encoder.encode_descriptor("saturation", help, None, MetricType::Gauge)?;
    for row in rows {
        let labels = [("topic", row.topic.clone()), ("shard", row.shard.to_string())];
        let share = match row.max_size {
            Some(0) => 1.0,
            Some(most) => (row.stats.live() as f64 / most as f64).min(1.0),
            None => 0.0,
        };
        ConstGauge::new(share).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn by_topic(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    rows: &[Row],
    value: impl Fn(&Row) -> u64,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for row in rows {
        let labels = [("topic", row.topic.as_str())];
        let series = family.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(value(row)).encode(series)?,
            _ => ConstGauge::new(whole(value(row))).encode(series)?,
        }
    }
    Ok(())
}

fn deaths(encoder: &mut DescriptorEncoder<'_>, deaths: &HashMap<String, Deaths>) -> fmt::Result {
    let help = "Messages that became dead letters, as far as they are still there to be counted";
    let mut family = encoder.encode_descriptor("dlq", help, None, MetricType::Counter)?;
    for (topic, known) in deaths {
        for (reason, count) in DeadReason::ALL.iter().zip(known.by_reason) {
            if count > 0 {
                let labels = [("topic", topic.as_str()), ("reason", reason.as_str())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

/// What the store measures of itself.
fn figures(encoder: &mut DescriptorEncoder<'_>, figures: &[mailbox::Figure]) -> fmt::Result {
    use mailbox::Figure;

    for figure in figures {
        match figure {
            Figure::Gauge { name, help, value } => {
                let gauge = ConstGauge::new(whole(*value));
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
            Figure::Histogram { name, help, sum, count, buckets } => {
                let mut series =
                    encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
                series.encode_histogram::<[(&str, &str); 0]>(*sum, *count, buckets, None)?;
            }
            _ => {}
        }
    }
    Ok(())
}

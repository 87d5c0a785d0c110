//! The journal against what the disk allows and against peers that keep the same promise: answered
//! means that a power cut does not take it.
//!
//! Everything of one run is on one file system, see [`place`]. The limit is [`bare_log`]: what is
//! left of a journal if it need not find, deliver or ever remove anything. All peers are written to
//! by one thread that takes whatever waits, so what differs is how they write, not how they group.

mod bare_log;
pub(crate) mod child;
pub(crate) mod cycle;
pub(crate) mod disk;
mod fjall_peer;
mod grouped;
pub(crate) mod latency;
pub(crate) mod load;
pub(crate) mod opening;
mod ours;
pub(crate) mod place;
pub(crate) mod resident;
pub(crate) mod sends;
mod sqlite_peer;

use tokio::runtime::Runtime;

/// Two workers, whoever is measured.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime starts")
}

/// A count that can be set lower for a quick look; the bounds are meant for the default.
pub(crate) fn count_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How many messages wait where a million are meant to.
fn backlog() -> u64 {
    count_from("MAILBOX_BENCH_BACKLOG", 1_000_000)
}

/// The middle one, or the lower of the two in the middle.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    quantile(&mut figures, 0.5)
}

/// The figure that this share of all figures does not exceed. Not a number if there are none.
pub(crate) fn quantile(figures: &mut [f64], share: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let at = (share * figures.len().saturating_sub(1) as f64) as usize;
    figures.get(at).copied().unwrap_or(f64::NAN)
}

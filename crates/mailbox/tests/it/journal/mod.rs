//! The journal, from outside.

mod audit;
mod basics;
mod belief;
mod bit_flips;
mod corners;
mod crash_images;
mod disk_full;
mod failing_operations;
mod failing_syncs;
mod history;
mod leases;
mod nested;
#[cfg(feature = "planted")]
mod planted;
mod refusals;
mod torn_tail;
mod watched;
mod workload;

/// How much larger than usual the experiments are.
fn scale() -> u64 {
    std::env::var("FAULTS_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

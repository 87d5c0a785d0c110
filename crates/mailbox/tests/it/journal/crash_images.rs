//! Power cuts at every step of the journal's own writing: opens, and keeps what it promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mailbox::backends::journal::JournalConfig;
use mailbox::backends::journal::disk::SimDisk;
use mailbox::testing::ManualClock;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::audit::{Auditor, Image, Violation, audit};
use super::history::History;
use super::scale;
use super::watched::{Step, Watched};
use super::workload::{Life, Random, Restarts, config};

/// How a life is lived, and looked at.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) config: JournalConfig,
    pub(super) restarts: Restarts,
    /// Steps in one life.
    pub(super) steps: usize,
    /// Images taken before each sync, and before each other change.
    pub(super) before_sync: u64,
    pub(super) before_change: u64,
    /// Images altogether, in as many lives as it takes.
    pub(super) images: u64,
}

impl Plan {
    pub(super) fn new(images: u64) -> Self {
        Self {
            config: config(&ManualClock::new()),
            restarts: Restarts::Never,
            steps: 150,
            before_sync: 5,
            before_change: 1,
            images,
        }
    }
}

/// Lives as many lives as it takes to audit so many images.
pub(super) fn run(plan: &Plan, first_seed: u64) -> Result<u64, Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut audited = 0;
    let mut seed = first_seed;
    while audited < plan.images {
        audited += one_life(&runtime, plan, seed)
            .map_err(|violation| format!("life with seed {seed}: {violation}"))?;
        seed += 1;
    }
    Ok(audited)
}

fn one_life(runtime: &Runtime, plan: &Plan, seed: u64) -> Result<u64, Violation> {
    let (life, images) = images_of_a_life(runtime, plan, seed)?;
    let mut auditor = Auditor::new(life.history.notes());
    let count = images.len() as u64;
    for (number, image) in images.into_iter().enumerate() {
        let belief = auditor.belief(image.before, image.after);
        let config = plan.config.clone().with_clock(life.clock.clock());
        let audited = runtime.block_on(audit(&image, &life.path, config, &belief));
        audited.map_err(|violation| {
            format!("image {number} (power cut {:#x}): {violation}", image.seed)
        })?;
    }
    Ok(count)
}

/// Lives a life, and takes images of the disk on the way, in the order in which they have to be
/// looked at.
pub(super) fn images_of_a_life(
    runtime: &Runtime,
    plan: &Plan,
    seed: u64,
) -> Result<(Life, Vec<Image>), Violation> {
    let history = Arc::new(History::default());
    let images = Arc::new(Mutex::new(Vec::new()));
    let disk = SimDisk::new();
    let watched = watch(&disk, plan, seed, &history, &images);
    let mut life = Life::new(seed, &history, plan.config.clone().with_disk(Arc::new(watched)))
        .with_restarts(plan.restarts);
    for step in 0..plan.steps {
        if let Some(error) = runtime.block_on(life.step()).first() {
            return Err(format!("step {step} has failed: {error:?}"));
        }
    }
    life.backend = None;
    let mut images: Vec<Image> = std::mem::take(&mut images.lock());
    images.sort_by_key(|image| image.before);
    Ok((life, images))
}

fn watch(
    disk: &SimDisk,
    plan: &Plan,
    seed: u64,
    history: &Arc<History>,
    images: &Arc<Mutex<Vec<Image>>>,
) -> Watched {
    let (history, images) = (Arc::clone(history), Arc::clone(images));
    let (before_sync, before_change) = (plan.before_sync, plan.before_change);
    let taken = AtomicU64::new(0);
    Watched::new(disk, move |step, _, disk| {
        let count = match step {
            Step::Sync => before_sync,
            Step::Change => before_change,
            Step::SyncFailed | Step::LockRefused => 0,
        };
        for _ in 0..count {
            let number = taken.fetch_add(1, Ordering::Relaxed);
            let seed = Random::new(seed << 32 | number).next();
            let before = history.len();
            let disk = disk.crash(seed);
            let after = history.len();
            images.lock().push(Image { disk, before, after, seed });
        }
    })
}

/// Images in each of the tests below; together they are 100,000.
const IMAGES: u64 = 25_000;

fn expect_no_violation(plan: &Plan, first_seed: u64) {
    let audited = run(plan, first_seed).unwrap();
    assert!(audited >= IMAGES * scale(), "only {audited} images were looked at");
}

#[test]
fn a_power_cut_at_any_step_loses_nothing_that_was_promised() {
    expect_no_violation(&Plan::new(IMAGES * scale()), 1_000);
}

#[test]
fn a_power_cut_around_stops_and_starts_loses_nothing_that_was_promised() {
    let restarts = Restarts::Sometimes;
    expect_no_violation(&Plan { restarts, ..Plan::new(IMAGES * scale()) }, 2_000);
}

#[test]
fn a_power_cut_in_a_long_life_with_many_segments_loses_nothing_that_was_promised() {
    let plan = Plan { steps: 500, before_sync: 2, ..Plan::new(IMAGES * scale()) };
    expect_no_violation(&plan, 3_000);
}

#[test]
fn a_power_cut_with_two_logs_and_more_spares_loses_nothing_that_was_promised() {
    let mut plan = Plan { restarts: Restarts::Sometimes, ..Plan::new(IMAGES * scale()) };
    (plan.config.shards, plan.config.spare_segments) = (2, 3);
    expect_no_violation(&plan, 4_000);
}

//! Bugs that are switched on: every one of them is noticed by the experiment that is meant for it,
//! and without one no experiment complains.

use std::sync::Arc;

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{Bug, JournalBackend, JournalConfig, Planted};
use mailbox::testing::ManualClock;

use super::audit::Violation;
use super::workload::{Restarts, config, own_path};
use super::{bit_flips, crash_images, disk_full, failing_syncs, leases, refusals};

/// Images that it may take to notice a bug; flips, syncs and cycles likewise.
const IMAGES: u64 = 6_000;
const FLIPS: u64 = 400;
const SYNCS: u64 = 60;
const CYCLES: u64 = 3;

/// What notices a bug.
#[derive(Debug, Clone, Copy)]
enum Experiment {
    PowerCuts,
    PowerCutsAndRestarts,
    BitFlips,
    FailingSyncs,
    FullDisk,
    NewHandles,
    SecondOpener,
}

impl Experiment {
    fn run(self, settings: &JournalConfig) -> Result<(), Violation> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match self {
            Self::PowerCuts => power_cuts(settings, Restarts::Never),
            Self::PowerCutsAndRestarts => power_cuts(settings, Restarts::Sometimes),
            Self::BitFlips => bit_flips::flip_bits(settings, false, FLIPS),
            Self::FailingSyncs => (1..=SYNCS).try_for_each(|k| {
                let failed = failing_syncs::one_failure(&runtime, settings, k);
                failed.map_err(|violation| format!("sync {k}: {violation}"))
            }),
            Self::FullDisk => disk_full::fill_and_drain(settings, CYCLES),
            Self::NewHandles => runtime.block_on(leases::handles_are_new(settings)),
            Self::SecondOpener => runtime.block_on(async {
                let (path, disk) = (own_path(), SimDisk::new());
                let first = settings.clone().with_disk(Arc::new(disk.clone()));
                let _first = JournalBackend::open_with(&path, first).await.unwrap();
                refusals::second_opener(&path, settings, &disk).await
            }),
        }
    }
}

fn power_cuts(settings: &JournalConfig, restarts: Restarts) -> Result<(), Violation> {
    let plan = crash_images::Plan {
        config: settings.clone(),
        restarts,
        steps: 300,
        before_sync: 3,
        ..crash_images::Plan::new(IMAGES)
    };
    crash_images::run(&plan, 9_000).map(drop)
}

fn expect_noticed(bug: Bug, experiment: Experiment) {
    let mut settings = config(&ManualClock::new());
    settings.planted = Planted::bug(bug);
    let violation = experiment.run(&settings).expect_err("the experiment notices the bug");
    eprintln!("{bug:?} is noticed by {experiment:?}: {violation}");
}

macro_rules! planted_bugs {
    ($($test:ident: $bug:ident => $experiment:ident,)*) => {
        $(
            #[test]
            fn $test() {
                expect_noticed(Bug::$bug, Experiment::$experiment);
            }
        )*
    };
}

planted_bugs! {
    an_answer_before_the_sync_is_noticed: AnswerBeforeSync => PowerCuts,
    a_delivery_before_the_sync_is_noticed: DeliverBeforeSync => PowerCuts,
    a_directory_that_is_not_synced_is_noticed: NoDirSync => PowerCuts,
    a_segment_that_is_not_synced_is_noticed: NoSegmentSync => PowerCuts,
    checksums_that_nobody_looks_at_are_noticed: NoChecksum => BitFlips,
    a_missing_salt_is_noticed: NoSalt => PowerCuts,
    a_lease_that_is_used_again_is_noticed: ReusedLease => NewHandles,
    damage_that_is_taken_for_the_end_is_noticed: DamageIsEnd => BitFlips,
    a_failed_sync_that_is_ignored_is_noticed: SyncFailureIgnored => FailingSyncs,
    trust_in_the_page_cache_is_noticed: PageCacheTrusted => FailingSyncs,
    a_segment_that_goes_too_early_is_noticed: TrimBeforeSync => PowerCuts,
    a_missing_reserve_is_noticed: NoReserve => FullDisk,
    keys_that_are_not_restored_are_noticed: KeysForgotten => PowerCuts,
    keys_that_compaction_forgets_are_noticed: KeysNotMoved => PowerCuts,
    acknowledgements_that_are_not_written_are_noticed: AckNotWritten => PowerCuts,
    deliveries_that_compaction_forgets_are_noticed: StateNotMoved => PowerCuts,
    rules_that_compaction_forgets_are_noticed: RulesNotMoved => PowerCuts,
    an_index_that_is_too_old_is_noticed: StaleIndex => PowerCutsAndRestarts,
    a_missing_lock_is_noticed: NoLock => SecondOpener,
    a_batch_that_is_written_too_early_is_noticed: EarlyBatch => PowerCuts,
}

#[test]
fn without_a_bug_no_experiment_complains() {
    use Experiment::{
        BitFlips, FailingSyncs, FullDisk, NewHandles, PowerCuts, PowerCutsAndRestarts, SecondOpener,
    };
    for experiment in [
        PowerCuts,
        PowerCutsAndRestarts,
        BitFlips,
        FailingSyncs,
        FullDisk,
        NewHandles,
        SecondOpener,
    ] {
        let complaint = experiment.run(&config(&ManualClock::new()));
        assert_eq!(complaint, Ok(()), "{experiment:?}");
    }
}

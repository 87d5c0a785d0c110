//! Every operation on the disk fails once: an error that says so, and nothing that was promised is
//! lost.

use std::io::ErrorKind as IoErrorKind;
use std::sync::Arc;
use std::time::Duration;

use mailbox::ErrorKind;
use mailbox::backends::journal::disk::SimDisk;
use mailbox::testing::ManualClock;

use super::audit::{Auditor, Image, audit};
use super::history::{History, Note};
use super::scale;
use super::workload::{Life, Restarts, config};

/// Steps in a life: as many as make a few segments.
const STEPS: usize = 60;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

const FAILURES: [IoErrorKind; 5] = [
    IoErrorKind::Other,
    IoErrorKind::WriteZero,
    IoErrorKind::StorageFull,
    IoErrorKind::PermissionDenied,
    IoErrorKind::ReadOnlyFilesystem,
];

/// What a failing disk may be called.
const KINDS: [ErrorKind; 4] =
    [ErrorKind::Internal, ErrorKind::Saturated, ErrorKind::Forbidden, ErrorKind::Closed];

async fn live(operation: u64, failure: IoErrorKind) -> u64 {
    let what = format!("operation {operation} fails with {failure}");
    let mut disk = SimDisk::new();
    disk.fail_operation_at(operation, failure);
    let history = Arc::new(History::default());
    let settings = config(&ManualClock::new()).with_disk(Arc::new(disk.clone()));
    let mut life = Life::new(5, &history, settings).with_restarts(Restarts::Sometimes);
    let mut operations = 0;
    for _ in 0..STEPS {
        let step = tokio::time::timeout(PATIENCE, life.step()).await;
        let errors = step.unwrap_or_else(|_| panic!("{what}: there is no answer"));
        for error in errors {
            assert!(KINDS.contains(&error.kind()), "{what}: {error:?}");
        }
        operations = operations.max(disk.operations());
        if life.backend.is_none() && disk.operations() >= operation {
            // A name whose directory could not be synced stays lost, as long as the machine runs.
            disk = disk.crash(operation);
            life.move_to(Arc::new(disk.clone()));
            history.note(Note::Crashed);
        }
    }
    let all = history.len();
    for image in [disk.crash(operation), disk.fork()] {
        let image = Image { disk: image, before: all, after: all, seed: operation };
        let belief = Auditor::new(history.notes()).belief(all, all);
        let audited = audit(&image, &life.path, life.config.clone(), &belief).await;
        audited.unwrap_or_else(|violation| panic!("{what}: {violation}"));
    }
    operations
}

#[test]
fn any_operation_may_fail_once_and_nothing_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let operations = live(u64::MAX, IoErrorKind::Other).await;
        assert!(operations > 100, "{operations} are few");
        for round in 0..scale() {
            for operation in 1..=operations {
                let number = usize::try_from(operation + round).unwrap();
                live(operation, FAILURES[number % FAILURES.len()]).await;
            }
        }
    });
}

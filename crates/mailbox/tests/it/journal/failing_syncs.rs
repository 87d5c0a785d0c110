//! Syncs that fail: nothing is promised any more, and nothing that was promised is lost.

use std::io::ErrorKind as IoErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::backends::journal::JournalConfig;
use mailbox::backends::journal::disk::{Disk, SimDisk};
use mailbox::testing::ManualClock;
use mailbox::{Backend, Error, ErrorKind};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::audit::{Auditor, Image, Violation, audit};
use super::history::{History, Note};
use super::scale;
use super::watched::{Step, Watched};
use super::workload::{Life, Restarts, config};

/// How long a failure may take to reach every log.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// Steps that are tried after a failure.
const STEPS_AFTER: usize = 8;
/// Steps that it takes at most until a sync is reached.
const STEPS_MAX: usize = 400;

/// A disk whose `k`-th sync fails: the path that it was of, and those that were synced after it.
fn failing(disk: &SimDisk, k: u64) -> (Watched, Arc<Mutex<Vec<PathBuf>>>) {
    let synced_since = Arc::new(Mutex::new(Vec::new()));
    let since = Arc::clone(&synced_since);
    disk.fail_sync_at(k, IoErrorKind::Other);
    let watched = Watched::new(disk, move |step, path, _| {
        let mut since = since.lock();
        if step == Step::SyncFailed || step == Step::Sync && !since.is_empty() {
            since.push(path.to_owned());
        }
    });
    (watched, synced_since)
}

/// A life in which the `k`-th sync fails.
pub(super) fn one_failure(
    runtime: &Runtime,
    config: &JournalConfig,
    k: u64,
) -> Result<(), Violation> {
    let disk = SimDisk::new();
    let (watched, synced_since) = failing(&disk, k);
    let history = Arc::new(History::default());
    let config = config.clone().with_disk(Arc::new(watched));
    let mut life = Life::new(k, &history, config).with_restarts(Restarts::Sometimes);
    for _ in 0..STEPS_MAX {
        if disk.syncs() >= k {
            break;
        }
        check_errors(&runtime.block_on(life.step()))?;
        if life.backend.is_none() {
            wait_until_let_go(&disk, &life)?;
        }
    }
    if disk.syncs() < k {
        return Err(format!("there were only {} syncs", disk.syncs()));
    }
    if life.backend.is_some() {
        nothing_is_promised(runtime, &mut life)?;
    }
    let synced_since = synced_since.lock().clone();
    let is_file = |path: &PathBuf| path.extension().is_some();
    let failed = synced_since.first().filter(|path| is_file(path));
    if let Some(failed) = failed
        && synced_since[1..].contains(failed)
    {
        return Err(format!("{} was synced again", failed.display()));
    }
    // A directory whose sync failed stays as it is on this disk: nothing can be done about that.
    let next = if failed.is_some() { disk.fork() } else { disk.crash(k) };
    nothing_is_lost(runtime, &mut life, &disk, &next, k)
}

/// What was dropped goes on writing for a moment. If it is there that the sync fails, nobody is
/// left to be told, and the next one to open it is not concerned.
fn wait_until_let_go(disk: &SimDisk, life: &Life) -> Result<(), Violation> {
    let deadline = Instant::now() + HEARD_WITHIN;
    let file = life.path.join("lock");
    while life.config.disk.list(&life.path).is_ok() {
        let lock = disk.lock(&file).map_err(|error| format!("the lock: {error}"))?;
        if lock.is_some() {
            break;
        }
        if Instant::now() > deadline {
            return Err("the journal is not let go of".to_owned());
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn check_errors(errors: &[Error]) -> Result<(), Violation> {
    match errors.iter().find(|error| error.kind() != ErrorKind::Internal) {
        Some(error) => Err(format!("the error is of another kind: {error:?}")),
        None => Ok(()),
    }
}

/// Sends something; whether any of it was answered.
fn send_is_answered(runtime: &Runtime, life: &mut Life) -> Result<bool, Violation> {
    let answered = life.history.len();
    let backend = life.backend.clone().expect("it is open");
    life.history.note(Note::Step);
    let mut errors = Vec::new();
    let sent = runtime.block_on(life.send(&backend, 0, &mut errors));
    errors.extend(sent.err());
    check_errors(&errors)?;
    let notes = life.history.notes();
    Ok(notes[answered..].iter().any(|note| matches!(note, Note::Sent { .. })))
}

fn nothing_is_promised(runtime: &Runtime, life: &mut Life) -> Result<(), Violation> {
    // The disk has said so; until the journal has heard it, another of its logs may answer.
    let deadline = Instant::now() + HEARD_WITHIN;
    while send_is_answered(runtime, life)? {
        if Instant::now() > deadline {
            return Err("sends are answered although a sync has failed".to_owned());
        }
    }
    for _ in 0..STEPS_AFTER {
        if send_is_answered(runtime, life)? {
            return Err("a send was answered after one was refused".to_owned());
        }
    }
    if let Some(sent) = runtime.block_on(life.send_in_doubt()) {
        return Err(format!("what was in doubt was answered: {sent:?}"));
    }
    let backend = life.backend.take();
    match backend.map(|backend| runtime.block_on(backend.close())) {
        Some(Ok(())) => Err("it was closed as if nothing had happened".to_owned()),
        _ => Ok(()),
    }
}

/// Opens what the end of the process leaves, and what a power cut leaves, goes on for a while, and
/// cuts the power again.
fn nothing_is_lost(
    runtime: &Runtime,
    life: &mut Life,
    disk: &SimDisk,
    next: &SimDisk,
    k: u64,
) -> Result<(), Violation> {
    life.backend = None;
    let all = life.history.len();
    let config = life.config.clone();
    for image in [disk.crash(k), disk.fork()] {
        let image = Image { disk: image, before: all, after: all, seed: k };
        let belief = Auditor::new(life.history.notes()).belief(all, all);
        let audited = audit(&image, &life.path, config.clone(), &belief);
        runtime.block_on(audited).map_err(|violation| format!("after it: {violation}"))?;
    }
    life.move_to(Arc::new(next.clone()));
    life.history.note(Note::Crashed);
    for _ in 0..STEPS_AFTER {
        if let Some(error) = runtime.block_on(life.step()).first() {
            return Err(format!("in the next life: {error:?}"));
        }
    }
    let all = life.history.len();
    let image = Image { disk: next.crash(SimDisk::NOTHING_KEPT), before: all, after: all, seed: k };
    let belief = Auditor::new(life.history.notes()).belief(all, all);
    let audited = audit(&image, &life.path, config, &belief);
    runtime.block_on(audited).map_err(|violation| format!("after the next life: {violation}"))
}

#[test]
fn after_a_failed_sync_nothing_is_promised_and_nothing_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for k in 1..=100 * scale() {
        let config = config(&ManualClock::new());
        one_failure(&runtime, &config, k)
            .unwrap_or_else(|violation| panic!("sync {k} fails: {violation}"));
    }
}

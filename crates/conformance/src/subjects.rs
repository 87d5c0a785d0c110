//! What is examined. One function each; adding one here is all there is to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::backends::journal::JournalConfig;
use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::memory::{MemoryBackend, MemoryConfig};
use mailbox::testing::ManualClock;
use mailbox::{Abilities, Backend, Error, ErrorKind, Mailbox, Result};
use tempfile::TempDir;

use crate::blocking::Bridge;
use crate::command_line::{self, CommandLine};
use crate::fault::Faulty;
use crate::journal::Reopening;
use crate::peer::{Opening, Pair};
pub use crate::redis::{redis, redis_cluster, redis_sentinel};
pub use crate::service::{
    grpc_journal, grpc_memory, http_journal, http_memory, http_redis, http_two, oap_journal,
    oap_memory,
};
use crate::subject::{Home, Opened, Restart, Setup, Subject};
use crate::world::Time;

/// A unit of time that several runs of a command fit into, also on a busy machine.
const RUNS: Duration = Duration::from_secs(1);

/// Everything that is examined in an ordinary run.
#[must_use]
pub fn all() -> Vec<Subject> {
    vec![
        memory(),
        local(),
        blocking(),
        fault(),
        fake(),
        journal(),
        journal_restart(),
        dir(),
        dir_sharded(),
        dir_two(),
        redis(),
        redis_cluster(),
        redis_sentinel(),
        http_memory(),
        http_journal(),
        http_redis(),
        http_two(),
        grpc_memory(),
        grpc_journal(),
        oap_memory(),
        oap_journal(),
    ]
}

/// What is examined where it is built: which cases run there is in the same table.
#[must_use]
pub fn elsewhere() -> Vec<Subject> {
    vec![cli("mailbox")]
}

/// Mailboxes in memory, bodies encoded.
#[must_use]
pub fn memory() -> Subject {
    Subject::in_virtual_time("memory", memory_abilities(), async |setup, clock| {
        in_memory(setup, &clock).map(|backend| backend as Arc<dyn Backend>)
    })
    .with(|info| info.reference = true)
}

/// Mailboxes that live in their handles, bodies as they are.
#[must_use]
pub fn local() -> Subject {
    Subject::new("local", local_abilities(), async |_| {
        let clock = ManualClock::new();
        let home = Home::Local(clock.clock());
        Ok(Opened { home, time: Time::Virtual(clock), restart: None, keep: None })
    })
    .with(|info| (info.backend, info.virtual_time) = (false, true))
}

/// Mailboxes in memory, behind a decorator that drops futures, delays and repeats.
#[must_use]
pub fn fault() -> Subject {
    Subject::in_virtual_time("fault", memory_abilities(), async |setup, clock| {
        let inner = in_memory(setup, &clock)?;
        Ok(Arc::new(Faulty::new(inner, clock, 1)) as Arc<dyn Backend>)
    })
}

/// Mailboxes in memory, every call made on a thread through the blocking facade.
#[must_use]
pub fn blocking() -> Subject {
    Subject::in_virtual_time("blocking", memory_abilities(), async |setup, clock| {
        Ok(Arc::new(Bridge::new(in_memory(setup, &clock)?)) as Arc<dyn Backend>)
    })
    .with(|info| info.cancellable = false)
}

/// The double that promises to behave in full (T).
#[must_use]
pub fn fake() -> Subject {
    Subject::new("fake", memory_abilities(), async |_| {
        let clock = ManualClock::new();
        let home = Home::Fake(clock.clone());
        Ok(Opened { home, time: Time::Virtual(clock), restart: None, keep: None })
    })
    .with(|info| (info.backend, info.virtual_time) = (false, true))
}

/// Mailboxes in a journal, on the disk of this machine.
#[must_use]
pub fn journal() -> Subject {
    Subject::new("journal", journal_abilities(), async |setup| {
        let clock = ManualClock::new();
        let journal = Reopening::in_directory(temporary()?, journal_config(setup, &clock)).await?;
        Ok(opened_journal(Arc::new(journal), clock))
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
}

/// The same, closed and opened again before every call that does not find another one waiting.
#[must_use]
pub fn journal_restart() -> Subject {
    Subject::new("journal-restart", journal_abilities(), async |setup| {
        let clock = ManualClock::new();
        // In memory: what is at stake here is what is written, not how fast.
        let config = journal_config(setup, &clock).with_disk(Arc::new(SimDisk::new()));
        Ok(opened_journal(Arc::new(Reopening::always(config).await?), clock))
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
}

/// Mailboxes in folders, one file a message.
#[must_use]
pub fn dir() -> Subject {
    in_folders("dir", false)
}

/// The same, spread over 64 folders.
#[must_use]
pub fn dir_sharded() -> Subject {
    in_folders("dir-sharded", true)
}

fn in_folders(name: &'static str, sharded: bool) -> Subject {
    Subject::new(name, dir_abilities(), move |setup| async move {
        let (clock, dir) = (ManualClock::new(), temporary()?);
        opened_dir(opening(&dir, sharded, &setup), dir, clock).await
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
}

/// Mailboxes in folders, used by two processes at once.
#[must_use]
pub fn dir_two() -> Subject {
    Subject::new("dir-two", dir_abilities(), async |setup| {
        let (clock, dir) = (ManualClock::new(), temporary()?);
        opened_pair(opening(&dir, false, &setup), dir, clock).await
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
    .with(|info| info.alone = false)
}

/// Mailboxes in folders, every call a run of the `mailbox` command at this path, in real time.
#[must_use]
pub fn cli(program: impl Into<PathBuf>) -> Subject {
    let program = program.into();
    Subject::new("cli", command_line::abilities(), move |_| {
        let program = program.clone();
        async move { opened_cli(program, temporary()?).await }
    })
    .with(|info| (info.cancellable, info.library, info.restart) = (false, false, true))
}

fn opened_cli(program: PathBuf, dir: Arc<TempDir>) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(async move {
        let home = Home::Backend(Arc::new(CommandLine::open(&program, dir.path()).await?));
        let kept = Arc::clone(&dir);
        // Every run is a process of its own: to end and begin again is what it always does.
        let restart = Restart(Box::new(move || opened_cli(program, kept)));
        let time = Time::Real { unit: RUNS };
        Ok(Opened { home, time, restart: Some(restart), keep: Some(dir) })
    })
}

pub(crate) fn temporary() -> Result<Arc<TempDir>> {
    let dir = tempfile::tempdir().map_err(|error| {
        Error::new(ErrorKind::Internal, "no temporary directory").with_source(error)
    })?;
    Ok(Arc::new(dir))
}

fn opening(dir: &TempDir, sharded: bool, setup: &Setup) -> Opening {
    let Setup { max_mailboxes, max_waiters, max_payload } = *setup;
    Opening { path: dir.path().to_owned(), sharded, max_mailboxes, max_waiters, max_payload }
}

fn opened_dir(
    opening: Opening,
    dir: Arc<TempDir>,
    clock: ManualClock,
) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(async move {
        let config = opening.config(Some(&clock));
        let backend = DirectoryBackend::open_with(&opening.path, config).await?;
        let (kept, time) = (Arc::clone(&dir), clock.clone());
        let restart = Restart(Box::new(move || opened_dir(opening, kept, time)));
        let (home, time) = (Home::Backend(backend), Time::Virtual(clock));
        Ok(Opened { home, time, restart: Some(restart), keep: Some(dir) })
    })
}

fn opened_pair(
    opening: Opening,
    dir: Arc<TempDir>,
    clock: ManualClock,
) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(async move {
        let pair = Arc::new(Pair::open(opening.clone(), Some(clock.clone())).await?);
        let (old, kept, time) = (Arc::clone(&pair), Arc::clone(&dir), clock.clone());
        let restart = Restart(Box::new(move || {
            Box::pin(async move {
                old.crash().await;
                opened_pair(opening, kept, time).await
            })
        }));
        let (home, time) = (Home::Backend(pair), Time::Virtual(clock));
        Ok(Opened { home, time, restart: Some(restart), keep: Some(dir) })
    })
}

fn opened_journal(journal: Arc<Reopening>, clock: ManualClock) -> Opened {
    let (kept, time) = (Arc::clone(&journal), clock.clone());
    let restart = Restart(Box::new(move || {
        Box::pin(async move {
            kept.reopen().await?;
            Ok(opened_journal(kept, time))
        })
    }));
    let (home, time) = (Home::Backend(journal), Time::Virtual(clock));
    Opened { home, time, restart: Some(restart), keep: None }
}

/// Small segments, so that much happens that seldom does.
pub(crate) fn journal_config(setup: Setup, clock: &ManualClock) -> JournalConfig {
    let mut config = JournalConfig::default().with_clock(clock.clock());
    config.max_mailboxes = setup.max_mailboxes.unwrap_or(config.max_mailboxes);
    config.max_waiters = setup.max_waiters.unwrap_or(config.max_waiters);
    config.max_payload = setup.max_payload.unwrap_or(config.max_payload);
    let segment_len = (config.max_payload.saturating_mul(4) & !7).clamp(4 << 20, 1 << 30);
    config.segment_len = u32::try_from(segment_len).unwrap_or(1 << 30);
    config
}

fn dir_abilities() -> Abilities {
    DirectoryConfig::default().abilities()
}

pub(crate) fn journal_abilities() -> Abilities {
    Abilities::full("journal")
}

/// A memory backend as a case wants it.
///
/// # Errors
/// `InvalidParameter` for a setup that makes no sense.
pub fn in_memory(setup: Setup, clock: &ManualClock) -> Result<Arc<MemoryBackend>> {
    let mut config = MemoryConfig::default().with_clock(clock.clock());
    config.max_mailboxes = setup.max_mailboxes.unwrap_or(config.max_mailboxes);
    config.max_waiters = setup.max_waiters.unwrap_or(config.max_waiters);
    config.max_payload = setup.max_payload.unwrap_or(config.max_payload);
    MemoryBackend::with_config(config)
}

pub(crate) fn memory_abilities() -> Abilities {
    MemoryBackend::new().abilities().clone()
}

fn local_abilities() -> Abilities {
    let any: Mailbox<()> = Mailbox::local("any").expect("a good name");
    any.abilities().clone()
}

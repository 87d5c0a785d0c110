//! What is examined. One function each; adding one here is all there is to do.

use std::sync::Arc;

use mailbox::backends::journal::JournalConfig;
use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::memory::{MemoryBackend, MemoryConfig};
use mailbox::testing::ManualClock;
use mailbox::{Abilities, Backend, Error, ErrorKind, Mailbox, Result};

use crate::blocking::Bridge;
use crate::fault::Faulty;
use crate::journal::Reopening;
use crate::subject::{Home, Opened, Restart, Setup, Subject};
use crate::world::Time;

/// Everything that is examined in an ordinary run.
#[must_use]
pub fn all() -> Vec<Subject> {
    vec![memory(), local(), blocking(), fault(), fake(), journal(), journal_restart()]
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
        Ok(Opened { home, time: Time::Virtual(clock), restart: None })
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
        Ok(Opened { home: Home::Fake(clock.clone()), time: Time::Virtual(clock), restart: None })
    })
    .with(|info| (info.backend, info.virtual_time) = (false, true))
}

/// Mailboxes in a journal, on the disk of this machine.
#[must_use]
pub fn journal() -> Subject {
    Subject::new("journal", journal_abilities(), async |setup| {
        let clock = ManualClock::new();
        let dir = tempfile::tempdir().map_err(|error| {
            Error::new(ErrorKind::Internal, "no temporary directory").with_source(error)
        })?;
        let journal = Reopening::in_directory(dir, journal_config(setup, &clock)).await?;
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

fn opened_journal(journal: Arc<Reopening>, clock: ManualClock) -> Opened {
    let (kept, time) = (Arc::clone(&journal), clock.clone());
    let restart = Restart(Box::new(move || {
        Box::pin(async move {
            kept.reopen().await?;
            Ok(opened_journal(kept, time))
        })
    }));
    Opened { home: Home::Backend(journal), time: Time::Virtual(clock), restart: Some(restart) }
}

/// Small segments, so that much happens that seldom does.
fn journal_config(setup: Setup, clock: &ManualClock) -> JournalConfig {
    let mut config = JournalConfig::default().with_clock(clock.clock());
    config.max_mailboxes = setup.max_mailboxes.unwrap_or(config.max_mailboxes);
    config.max_waiters = setup.max_waiters.unwrap_or(config.max_waiters);
    config.max_payload = setup.max_payload.unwrap_or(config.max_payload);
    let segment_len = (config.max_payload.saturating_mul(4) & !7).clamp(4 << 20, 1 << 30);
    config.segment_len = u32::try_from(segment_len).unwrap_or(1 << 30);
    config
}

fn journal_abilities() -> Abilities {
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

fn memory_abilities() -> Abilities {
    MemoryBackend::new().abilities().clone()
}

fn local_abilities() -> Abilities {
    let any: Mailbox<()> = Mailbox::local("any").expect("a good name");
    any.abilities().clone()
}

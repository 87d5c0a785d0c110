//! The process that is killed: opens the home and keeps producers and consumers busy until it is
//! stopped, telling its parent every attempt and every answer (see [`crate::event`]).
//!
//! Invariant: it ends by itself when its parent has gone, and when nothing succeeds any more.

mod consumer;
mod producer;
mod racer;
mod tell;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use mailbox::Backend;
use tokio::task::JoinSet;

use crate::event::Event;
use crate::letters::{Letters, MAILBOXES, mailboxes};
use crate::random::Random;
use crate::subject::Setup;
use tell::Tell;

/// Live messages at which producers pause.
const BACKLOG: i64 = 300;
/// How often they are counted by somebody who does not see them go.
const RECOUNT: Duration = Duration::from_millis(20);
/// A task gives up after this many failures: enough to see that they all fail.
const FAILURES: u32 = 25;

/// What a worker is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sending, receiving and dead letters.
    Everything,
    /// Sending.
    Producer,
    /// Receiving and dead letters.
    Consumer,
    /// Receiving and acknowledging as fast as it goes, against others.
    Racer,
}

impl Role {
    const ALL: [Self; 4] = [Self::Everything, Self::Producer, Self::Consumer, Self::Racer];

    const fn word(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::Racer => "racer",
        }
    }

    /// Producers, each with one send under way.
    const fn producers(self) -> u64 {
        match self {
            Self::Everything => 6,
            Self::Producer => 3,
            Self::Consumer | Self::Racer => 0,
        }
    }

    /// Consumers, each with one receive under way.
    const fn consumers(self) -> u64 {
        match self {
            Self::Everything => 4,
            Self::Consumer => 2,
            Self::Producer | Self::Racer => 0,
        }
    }
}

/// What a worker is told to do.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Where the home is.
    pub(crate) dir: PathBuf,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// First number for messages.
    pub(crate) first: u64,
    /// What it is there for.
    pub(crate) role: Role,
    /// How the home is set up.
    pub(crate) setup: Setup,
}

impl Orders {
    /// As arguments of the worker.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let dir = self.dir.display().to_string();
        let (seed, first) = (self.seed.to_string(), self.first.to_string());
        let mut all = vec!["child".to_owned(), dir, seed, first, self.role.word().to_owned()];
        all.extend(self.setup.arguments());
        all
    }

    /// Reads the arguments behind `child`.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let [dir, seed, first, role, setup @ ..] = arguments else { return None };
        Some(Self {
            dir: PathBuf::from(dir),
            seed: seed.parse().ok()?,
            first: first.parse().ok()?,
            role: Role::ALL.into_iter().find(|known| known.word() == role)?,
            setup: Setup::parse(setup)?,
        })
    }
}

/// What the tasks of a worker share.
#[derive(Debug)]
struct Shared {
    backend: Arc<dyn Backend>,
    letters: Letters,
    tell: Tell,
    next: AtomicU64,
    /// Sends minus deletions; below zero while a backlog of former workers is drained.
    backlog: AtomicI64,
}

impl Shared {
    /// A new message's number, for the mailbox with this index.
    fn number(&self, mailbox: u64) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) * MAILBOXES + mailbox
    }

    fn is_crowded(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) > BACKLOG
    }
}

/// The life of a worker.
pub(crate) async fn run(orders: Orders) -> ExitCode {
    if orders.role == Role::Racer {
        return racer::run(&orders).await;
    }
    end_with_parent();
    let tell = Tell::default();
    let backend = match orders.setup.open(&orders.dir).await {
        Ok(backend) => backend,
        Err(error) => {
            tell.failed("open", &error);
            return ExitCode::FAILURE;
        }
    };
    tell.say(&[Event::Opened]);
    let shared = Arc::new(Shared {
        backend,
        letters: Letters::of(orders.seed, orders.setup.subject()),
        tell,
        next: AtomicU64::new(orders.first.div_ceil(MAILBOXES)),
        backlog: AtomicI64::new(0),
    });
    let mut tasks = JoinSet::new();
    let (producers, consumers) = (orders.role.producers(), orders.role.consumers());
    for task in 0..producers {
        let random = Random::of(orders.seed ^ orders.first, task);
        tasks.spawn(producer::run(Arc::clone(&shared), random));
    }
    for task in 0..consumers {
        let random = Random::of(orders.seed ^ orders.first, producers + task);
        tasks.spawn(consumer::run(Arc::clone(&shared), random));
    }
    let random = Random::of(orders.seed ^ orders.first, producers + consumers);
    // These have nothing to fail at where there is nothing to do: they end with the others.
    let aside = if consumers > 0 {
        tokio::spawn(consumer::keep_dead_letters(Arc::clone(&shared), random))
    } else {
        tokio::spawn(keep_count(Arc::clone(&shared)))
    };
    while let Some(ended) = tasks.join_next().await {
        if let Err(panic) = ended {
            shared.tell.say(&[Event::Failed {
                call: "task".to_owned(),
                kind: "panic".to_owned(),
                text: panic.to_string(),
            }]);
        }
    }
    aside.abort();
    // It was asked to end, so how it ends tells nothing.
    let _ = aside.await;
    // Nothing succeeds any more. Closing may fail too, and must not hang.
    let closed = tokio::time::timeout(Duration::from_secs(5), shared.backend.close()).await;
    if closed.is_err() {
        shared.tell.say(&[Event::Failed {
            call: "close".to_owned(),
            kind: "hangs".to_owned(),
            text: "not closed within 5 s".to_owned(),
        }]);
    }
    ExitCode::SUCCESS
}

/// Counts what is there: messages are deleted by other processes.
async fn keep_count(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(RECOUNT).await;
        let mut live = 0;
        for mailbox in mailboxes() {
            // An error is the others' to tell.
            live += shared.backend.stats(&mailbox).await.map_or(0, |stats| stats.live());
        }
        shared.backlog.store(live.cast_signed(), Ordering::Relaxed);
    }
}

/// Nobody is left behind: standard input is held open by the parent and says nothing.
fn end_with_parent() {
    std::thread::spawn(|| {
        let mut nothing = Vec::new();
        // Whether it ends or breaks, the parent has gone.
        let _ = std::io::stdin().lock().read_to_end(&mut nothing);
        std::process::exit(1);
    });
}

//! The life of one home: workers use it, a fault ends them, an audit looks at what is left, and
//! from there it goes on. Invariant: one ledger goes through all of it.

use std::io;
use std::path::{Path, PathBuf};

use crate::audit::Audit;
use crate::child::{Orders, Role};
use crate::evidence::Evidence;
use crate::ledger::Ledger;
use crate::report::{NotRun, Outcome};
use crate::scene::Scene;
use crate::subject::{Setup, Subject};
use crate::worker::{Crew, Said};

/// Numbers that one worker may use for its messages.
const NUMBERS: u64 = 1 << 32;
/// Workers that one home may have.
const WORKERS: u64 = 1 << 16;

/// A home, from one audit to the next.
#[derive(Debug)]
pub(crate) struct Life<'a> {
    scene: &'a Scene,
    /// How it is set up.
    pub(crate) setup: Setup,
    dir: PathBuf,
    /// What must be in it.
    pub(crate) ledger: Ledger,
    evidence: Evidence,
    /// The next worker.
    worker: u64,
    /// The first one since the last audit.
    first: u64,
}

impl<'a> Life<'a> {
    /// Home number `number` of an experiment, in `parent`.
    pub(crate) fn new(scene: &'a Scene, subject: Subject, number: u64, parent: &Path) -> Self {
        let worker = number * WORKERS;
        Self {
            scene,
            setup: Setup::new(subject, number, scene.bug()),
            dir: parent.join(subject.word()),
            ledger: Ledger::default(),
            evidence: Evidence::default(),
            worker,
            first: worker,
        }
    }

    /// The orders of a new worker; no two use the same numbers for messages.
    pub(crate) fn orders(&mut self, role: Role) -> Orders {
        let orders = Orders {
            dir: self.dir.clone(),
            seed: self.scene.seed,
            first: self.worker * NUMBERS,
            role,
            setup: self.setup,
        };
        self.worker += 1;
        orders
    }

    /// A whole crew, which continues the ledger.
    pub(crate) fn crew(&mut self) -> Result<Crew, NotRun> {
        let mut crew = Crew::new(std::mem::take(&mut self.ledger));
        for role in self.setup.subject().crew() {
            self.join(&mut crew, *role)?;
        }
        Ok(crew)
    }

    /// One more worker of a crew.
    pub(crate) fn join(&mut self, crew: &mut Crew, role: Role) -> Result<(), NotRun> {
        let orders = self.orders(role);
        crew.start(self.scene.command(&orders)).map_err(not_run)
    }

    /// Looks at what a fault has left, and what the workers said before it; returns whether
    /// anything is broken. `keep` is how many messages of each mailbox stay.
    pub(crate) async fn audit(
        &mut self,
        said: Said,
        keep: usize,
        outcome: &mut Outcome,
    ) -> Result<bool, NotRun> {
        self.evidence.before_audit(&self.dir, said.lines).map_err(not_run)?;
        let audit = Audit {
            dir: self.dir.clone(),
            setup: self.setup,
            letters: self.scene.letters(self.setup.subject()),
            repeat_from: self.first * NUMBERS,
            keep,
        };
        self.ledger = audit.run(said.ledger).await;
        self.first = self.worker;
        let is_broken = outcome.take(&mut self.ledger);
        if is_broken && self.scene.is_surprised() {
            self.evidence.keep(&self.dir).map_err(not_run)?;
        }
        Ok(is_broken)
    }
}

fn not_run(error: io::Error) -> NotRun {
    NotRun(format!("a worker: {error}"))
}

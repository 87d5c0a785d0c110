//! What every experiment needs to know, and a folder that goes away with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::child::Orders;
use crate::letters::Letters;
use crate::random::Random;
use crate::report::Outcome;
use crate::subject::{Bug, Subject};
use crate::symptom::Symptom;

/// How the experiments are run.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    /// This program: workers are the same one.
    pub(crate) program: PathBuf,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// A bug that is switched on, and what it must lead to: that ends the experiment.
    pub(crate) planted: Option<(Bug, Symptom)>,
}

impl Scene {
    /// How messages look in this run.
    pub(crate) fn letters(&self, subject: Subject) -> Letters {
        Letters::of(self.seed, subject)
    }

    /// The bug that is switched on.
    pub(crate) fn bug(&self) -> Option<Bug> {
        self.planted.map(|(bug, _)| bug)
    }

    /// The result of an experiment that begins now.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::start(self.planted.map(|(_, symptom)| symptom))
    }

    /// Whether something that is broken deserves a look: one that was planted is no surprise.
    pub(crate) fn is_surprised(&self) -> bool {
        self.planted.is_none()
    }

    /// A worker's command.
    pub(crate) fn command(&self, orders: &Orders) -> Command {
        let mut command = Command::new(&self.program);
        command.args(orders.arguments());
        command
    }

    /// The random numbers of an experiment.
    pub(crate) fn random(&self, experiment: &str) -> Random {
        let add = |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        Random::of(self.seed, experiment.bytes().fold(0, add))
    }
}

/// Waits to the microsecond, as far as the machine allows; the runtime's timer counts milliseconds.
pub(crate) async fn wait(time: Duration) {
    let waiting = tokio::task::spawn_blocking(move || std::thread::sleep(time));
    waiting.await.expect("sleeping does not panic");
}

/// A folder of its own, removed with everything in it unless it is kept for a look.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    kept: bool,
}

impl Folder {
    /// Makes one in `parent`.
    pub(crate) fn new(parent: &Path) -> std::io::Result<Self> {
        let name = format!("mailbox-faults-{}-{:016x}", std::process::id(), Random::fresh_seed());
        let path = parent.join(name);
        fs::create_dir_all(&path)?;
        Ok(Self { path, kept: false })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It stays when everything is over: something in it is wrong.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.kept {
            // There is nobody to tell, and nothing depends on it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

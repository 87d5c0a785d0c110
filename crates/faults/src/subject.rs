//! The home under test, and how it is set up. Journals have small segments, so that rolling and
//! compacting happen all the time; folders of inboxes are flat or have buckets.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use mailbox::backends::directory::{self, DirectoryBackend, DirectoryConfig};
use mailbox::backends::journal::{self, JournalBackend, JournalConfig};
use mailbox::{Backend, Durability, Result};

use crate::child::Role;

/// Largest payload of the experiments, with room to spare.
const MAX_PAYLOAD: usize = 16 * 1024;

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The journal: one process has it open.
    Journal,
    /// A folder of inboxes: any number of processes.
    Directory,
}

impl Subject {
    /// What it is called, and its folder.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Directory => "dir",
        }
    }

    /// The processes that use it at a time.
    pub(crate) const fn crew(self) -> &'static [Role] {
        match self {
            Self::Journal => &[Role::Everything],
            Self::Directory => &[Role::Producer, Role::Producer, Role::Consumer, Role::Consumer],
        }
    }

    /// Whether it has ordering groups.
    pub(crate) const fn has_groups(self) -> bool {
        matches!(self, Self::Journal)
    }

    /// Whether a delivery is counted for good once somebody has it, as long as there is power.
    pub(crate) const fn keeps_counts(self) -> bool {
        matches!(self, Self::Directory)
    }
}

/// A bug that is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// In the journal.
    Journal(journal::Bug),
    /// In the directory backend.
    Directory(directory::Bug),
}

impl Bug {
    /// What it is in.
    pub(crate) const fn subject(self) -> Subject {
        match self {
            Self::Journal(_) => Subject::Journal,
            Self::Directory(_) => Subject::Directory,
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(bug) => write!(f, "{bug:?}"),
            Self::Directory(bug) => write!(f, "{bug:?}"),
        }
    }
}

/// How a home is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// A journal.
    Journal {
        /// Length of its files.
        segment_len: u32,
        /// Its logs.
        shards: u16,
        /// A bug that is switched on.
        planted: Option<journal::Bug>,
    },
    /// A folder of inboxes.
    Directory {
        /// With buckets.
        sharded: bool,
        /// Nothing waits for the disk.
        buffered: bool,
        /// A bug that is switched on.
        planted: Option<directory::Bug>,
    },
}

impl Setup {
    /// Number `number` of a kind: each in another way.
    pub(crate) fn new(subject: Subject, number: u64, bug: Option<Bug>) -> Self {
        match subject {
            Subject::Journal => {
                let segment_len = [64, 128, 256][(number % 3) as usize] * 1024;
                Self::journal(segment_len, 1 + (number % 2) as u16, bug)
            }
            Subject::Directory => Self::directory(number % 2 == 1, false, bug),
        }
    }

    /// A journal.
    pub(crate) fn journal(segment_len: u32, shards: u16, bug: Option<Bug>) -> Self {
        let planted = bug.and_then(|bug| match bug {
            Bug::Journal(bug) => Some(bug),
            Bug::Directory(_) => None,
        });
        Self::Journal { segment_len, shards, planted }
    }

    /// A folder of inboxes.
    pub(crate) fn directory(sharded: bool, buffered: bool, bug: Option<Bug>) -> Self {
        let planted = bug.and_then(|bug| match bug {
            Bug::Journal(_) => None,
            Bug::Directory(bug) => Some(bug),
        });
        Self::Directory { sharded, buffered, planted }
    }

    /// What it is a setup of.
    pub(crate) const fn subject(self) -> Subject {
        match self {
            Self::Journal { .. } => Subject::Journal,
            Self::Directory { .. } => Subject::Directory,
        }
    }

    /// Opens the home in `dir`.
    pub(crate) async fn open(self, dir: &Path) -> Result<Arc<dyn Backend>> {
        let backend: Arc<dyn Backend> = match self {
            Self::Journal { segment_len, shards, planted } => {
                let mut config = JournalConfig::default();
                config.segment_len = segment_len;
                config.shards = shards;
                config.max_payload = MAX_PAYLOAD;
                config.planted = planted.map(journal::Planted::bug).unwrap_or_default();
                JournalBackend::open_with(dir, config).await?
            }
            Self::Directory { sharded, buffered, planted } => {
                let mut config = DirectoryConfig::default().with_sender("faults");
                config.sharded = sharded;
                config.max_payload = MAX_PAYLOAD;
                config.planted = planted.map(directory::Planted::bug).unwrap_or_default();
                if buffered {
                    config.durability = Durability::OsBuffered;
                }
                DirectoryBackend::open_with(dir, config).await?
            }
        };
        Ok(backend)
    }

    /// The same as arguments of a worker.
    pub(crate) fn arguments(self) -> Vec<String> {
        let (first, second, bug) = match self {
            Self::Journal { segment_len, shards, planted } => {
                (segment_len.to_string(), shards.to_string(), planted.map(Bug::Journal))
            }
            Self::Directory { sharded, buffered, planted } => {
                (sharded.to_string(), buffered.to_string(), planted.map(Bug::Directory))
            }
        };
        let planted = bug.map_or_else(|| "none".to_owned(), |bug| bug.to_string());
        vec![self.subject().word().to_owned(), first, second, planted]
    }

    /// Reads them back.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let [subject, first, second, planted] = arguments else { return None };
        let known = |bug: &Bug| bug.subject().word() == subject && bug.to_string() == *planted;
        let bug = match planted.as_str() {
            "none" => None,
            _ => Some(BUGS.into_iter().find(known)?),
        };
        match subject.as_str() {
            "journal" => {
                let segment_len = u32::from_str(first).ok()?;
                Some(Self::journal(segment_len, u16::from_str(second).ok()?, bug))
            }
            "dir" => {
                let sharded = bool::from_str(first).ok()?;
                Some(Self::directory(sharded, bool::from_str(second).ok()?, bug))
            }
            _ => None,
        }
    }
}

/// The bugs that these experiments are to notice.
pub(crate) const BUGS: [Bug; 9] = [
    Bug::Journal(journal::Bug::AnswerBeforeSync),
    Bug::Journal(journal::Bug::AckNotWritten),
    Bug::Journal(journal::Bug::NoReserve),
    Bug::Directory(directory::Bug::FileNotSynced),
    Bug::Directory(directory::Bug::FolderNotSynced),
    Bug::Directory(directory::Bug::AckNotSynced),
    Bug::Directory(directory::Bug::AckNotWritten),
    Bug::Directory(directory::Bug::CountForgotten),
    Bug::Directory(directory::Bug::ClaimByCopy),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_is_read_back_from_its_arguments() {
        let of = |subject: Subject| {
            let here = BUGS.into_iter().filter(move |bug| bug.subject() == subject);
            here.map(Some).chain([None]).map(move |bug| (subject, bug))
        };
        for (subject, bug) in of(Subject::Journal).chain(of(Subject::Directory)) {
            for number in 0..6 {
                let setup = Setup::new(subject, number, bug);
                assert_eq!(Setup::parse(&setup.arguments()), Some(setup));
            }
        }
        let unknown = ["journal", "1", "1", "NoSuchBug"].map(str::to_owned);
        assert!(Setup::parse(&unknown).is_none());
    }
}

//! The journal under test, and how it is set up: small segments, so that rolling and compacting
//! happen all the time.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use mailbox::backends::journal::{Bug, JournalBackend, JournalConfig, Planted};
use mailbox::{Backend, Result};

/// Largest payload of the experiments, with room to spare.
const MAX_PAYLOAD: usize = 16 * 1024;

/// How the journal is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Length of its files.
    pub(crate) segment_len: u32,
    /// Its logs.
    pub(crate) shards: u16,
    /// A bug that is switched on.
    pub(crate) planted: Option<Bug>,
}

impl Setup {
    /// Opens the journal in `dir`.
    pub(crate) async fn open(self, dir: &Path) -> Result<Arc<dyn Backend>> {
        let mut config = JournalConfig::default();
        config.segment_len = self.segment_len;
        config.shards = self.shards;
        config.max_payload = MAX_PAYLOAD;
        if let Some(bug) = self.planted {
            config.planted = Planted::bug(bug);
        }
        let backend: Arc<dyn Backend> = JournalBackend::open_with(dir, config).await?;
        Ok(backend)
    }

    /// The same as arguments of a worker.
    pub(crate) fn arguments(self) -> Vec<String> {
        let planted = self.planted.map_or_else(|| "none".to_owned(), |bug| format!("{bug:?}"));
        vec![self.segment_len.to_string(), self.shards.to_string(), planted]
    }

    /// Reads them back.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let [segment_len, shards, planted] = arguments else { return None };
        let planted = match planted.as_str() {
            "none" => None,
            name => Some(bug(name)?),
        };
        Some(Self {
            segment_len: u32::from_str(segment_len).ok()?,
            shards: u16::from_str(shards).ok()?,
            planted,
        })
    }
}

/// The bugs that these experiments are to notice.
pub(crate) const BUGS: [Bug; 5] = [
    Bug::AnswerBeforeSync,
    Bug::NoDirSync,
    Bug::AckNotWritten,
    Bug::SyncFailureIgnored,
    Bug::NoReserve,
];

fn bug(name: &str) -> Option<Bug> {
    BUGS.into_iter().find(|bug| format!("{bug:?}") == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_is_read_back_from_its_arguments() {
        for planted in BUGS.into_iter().map(Some).chain([None]) {
            let setup = Setup { segment_len: 65_536, shards: 2, planted };
            let read = Setup::parse(&setup.arguments()).unwrap();
            assert_eq!((read.segment_len, read.shards), (65_536, 2));
            assert_eq!(read.planted, planted);
        }
        let unknown = ["1".to_owned(), "1".to_owned(), "NoSuchBug".to_owned()];
        assert!(Setup::parse(&unknown).is_none());
    }
}

//! Capabilities that were taken back. Invariant: on disk before it is said, and never forgotten
//! while a key is there that could have made one.

use std::collections::HashSet;

use mailbox::{Error, ErrorKind, Result, Timestamp};
use mailbox_wire::capability::TokenId;

use super::vault::{Looks, Vault};

const FILE: &str = "revoked";
/// Most that are remembered: one line is at most 100 bytes.
const MOST: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Revoked {
    ids: HashSet<TokenId>,
    looks: Option<Looks>,
}

impl Revoked {
    pub(super) fn open(vault: &Vault) -> Result<Self> {
        Ok(Self::default().changed(vault)?.unwrap_or_default())
    }

    pub(super) fn contains(&self, token_id: &TokenId) -> bool {
        self.ids.contains(token_id)
    }

    /// Writes down that one is taken back; says so only when it is on disk. Whoever verifies does
    /// not wait for that: it becomes known by [`Self::insert`].
    pub(super) fn write(&self, vault: &Vault, token_id: &TokenId) -> Result<()> {
        if self.ids.len() >= MOST {
            let message = format!(
                "{MOST} capabilities are revoked, the most that are remembered: `mailbox cap \
                 rotate --grace 0` makes all of them worthless, and then the file {FILE} in the \
                 data directory can be removed while the service is stopped"
            );
            return Err(Error::new(ErrorKind::Saturated, message));
        }
        vault.append(FILE, &format!("{token_id} {}\n", Timestamp::now()))
    }

    pub(super) fn insert(&mut self, token_id: &TokenId) {
        self.ids.insert(token_id.clone());
    }

    /// Reads the file if another process has changed it: what is known then, if it was.
    pub(super) fn changed(&self, vault: &Vault) -> Result<Option<Self>> {
        let looks = vault.looks(FILE)?;
        if looks == self.looks {
            return Ok(None);
        }
        let mut ids = self.ids.clone();
        if let Some(text) = vault.read(FILE)? {
            for line in text.lines() {
                // A power cut may have torn the last line: the call was not answered then.
                if let Some(Ok(id)) = line.split(' ').next().map(str::parse) {
                    ids.insert(id);
                }
            }
        }
        Ok(Some(Self { ids, looks }))
    }
}

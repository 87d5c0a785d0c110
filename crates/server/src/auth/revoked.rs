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
        let mut revoked = Self::default();
        revoked.refresh(vault)?;
        Ok(revoked)
    }

    pub(super) fn contains(&self, token_id: &TokenId) -> bool {
        self.ids.contains(token_id)
    }

    pub(super) fn add(&mut self, vault: &Vault, token_id: &TokenId) -> Result<()> {
        if self.ids.contains(token_id) {
            return Ok(());
        }
        if self.ids.len() >= MOST {
            let message = format!(
                "{MOST} capabilities are revoked, the most that are remembered: \
                 `mailbox cap rotate` makes all of them worthless"
            );
            return Err(Error::new(ErrorKind::Saturated, message));
        }
        vault.append(FILE, &format!("{token_id} {}\n", Timestamp::now()))?;
        self.ids.insert(token_id.clone());
        Ok(())
    }

    /// Reads the file if another process has changed it. True if something is new.
    pub(super) fn refresh(&mut self, vault: &Vault) -> Result<bool> {
        let looks = vault.looks(FILE)?;
        if looks == self.looks {
            return Ok(false);
        }
        let before = self.ids.len();
        if let Some(text) = vault.read(FILE)? {
            for line in text.lines() {
                // A power cut may have torn the last line: the call was not answered then.
                if let Some(Ok(id)) = line.split(' ').next().map(str::parse) {
                    self.ids.insert(id);
                }
            }
        }
        self.looks = looks;
        Ok(self.ids.len() != before)
    }
}

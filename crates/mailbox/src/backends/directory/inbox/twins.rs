//! Messages that a script has put there twice: told by the id in the file, which scripts choose
//! themselves. The second one of the same content is done before it is delivered; one with other
//! content is a dead letter. Whoever is alone is delivered, whatever is remembered: a script may
//! have put a message back under another name.

use bytes::Bytes;
use mailbox_core::DeadReason;

use super::Inbox;
use crate::backends::directory::folders::{Moved, Shelf};
use crate::backends::directory::keys::New;
use crate::backends::directory::line::Seen;
use crate::backends::directory::settings::Settings;
use crate::error::Result;

impl Inbox {
    /// Whether somebody has put this message there before; if so, it has been cleared away. Where
    /// that cannot be told, it is delivered: twice is better than not at all.
    pub(super) fn was_twin(
        &self,
        claimed: &Seen,
        own_id: &str,
        payload: &Bytes,
        settings: &Settings,
    ) -> bool {
        self.is_twin(claimed, own_id, payload, settings).unwrap_or_else(|error| {
            tracing::warn!(mailbox = %self.name, %error, "perhaps a message is there twice");
            false
        })
    }

    fn is_twin(
        &self,
        claimed: &Seen,
        own_id: &str,
        payload: &Bytes,
        settings: &Settings,
    ) -> Result<bool> {
        // Only at its first delivery. Who redrives a message wants it delivered.
        if claimed.name.count > 1 || claimed.name.entered.is_some() {
            return Ok(false);
        }
        let Some((first, is_same)) = self.first_with(claimed, own_id, payload, settings)? else {
            return Ok(false);
        };
        tracing::info!(
            mailbox = %self.name, message = %claimed.name.id(), first = %first, is_same,
            "another message has the same id"
        );
        if is_same {
            let mut done = claimed.name.at_rest();
            done.finished = Some(self.now());
            let to = self.spot(Shelf::Done, done.base(), settings);
            return Ok(self.rename(claimed.spot, &claimed.name, to, &done)? == Moved::Yes);
        }
        let error = format!("{first} has the same id and says something else");
        self.bury(claimed, DeadReason::Rejected, Some(&error), settings)
    }

    /// Which other message has this id, if it is there: waiting, taken or done.
    fn first_with(
        &self,
        claimed: &Seen,
        own_id: &str,
        payload: &Bytes,
        settings: &Settings,
    ) -> Result<Option<(Box<str>, bool)>> {
        let failed = |error| self.refused("remembering an id", error);
        let alone = self.lock.take().map_err(failed)?;
        // No sender can choose such a key.
        let key = format!("id {own_id}\0");
        let first_name = claimed.name.at_rest();
        let new = New {
            now: self.now(),
            key: &key,
            payload: &blake3::hash(payload),
            name: &first_name,
            policy: &settings.policy,
        };
        let mut keys = self.keys.lock();
        let Some((first, is_same)) = keys.first_with(&self.folders, &alone, new).map_err(failed)?
        else {
            return Ok(None);
        };
        if *first == *claimed.name.base() {
            return Ok(None);
        }
        if self.is_there(&first).map_err(failed)? {
            return Ok(Some((first, is_same)));
        }
        keys.replace(&self.folders, &alone, new).map_err(failed)?;
        Ok(None)
    }

    fn is_there(&self, base: &str) -> std::io::Result<bool> {
        let mut is_there = false;
        // Who sends again what died wants it delivered.
        for shelf in [Shelf::Incoming, Shelf::Processing, Shelf::Done] {
            self.visit_messages(shelf, |seen| {
                is_there |= seen.name.base() == base;
                Ok(!is_there)
            })?;
        }
        Ok(is_there)
    }
}

//! Dead letters.

use mailbox::{Name, Selection};
use mailbox_wire::capability::Op;

use crate::auth::Caller;
use crate::failure::Answer;
use crate::service::Service;

impl Service {
    /// Puts dead letters back in line; how many, and how many are left.
    pub(crate) async fn reprocess(
        &self,
        caller: &Caller,
        mailbox: &Name,
        which: &Selection,
    ) -> Answer<(u64, u64)> {
        self.check_open()?;
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        let done = self.store.redrive(mailbox, which).await?;
        Ok((done, self.store.stats(mailbox).await?.dead))
    }

    /// Deletes dead letters; how many, and how many are left.
    pub(crate) async fn delete_dead(
        &self,
        caller: &Caller,
        mailbox: &Name,
        which: &Selection,
    ) -> Answer<(u64, u64)> {
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        let done = self.store.delete_dead(mailbox, which).await?;
        Ok((done, self.store.stats(mailbox).await?.dead))
    }
}

//! Changing mailboxes as a whole.

use mailbox::{Error, Name, Policy};
use mailbox_wire::capability::Op;

use crate::auth::Caller;
use crate::failure::Answer;
use crate::service::Service;

impl Service {
    /// The rules of a mailbox.
    pub(crate) async fn policy(&self, caller: &Caller, mailbox: &Name) -> Answer<Policy> {
        caller.may(Op::Admin, Some(mailbox), 0)?;
        Ok(self.store.policy(mailbox).await?)
    }

    /// Sets the rules of a mailbox.
    pub(crate) async fn configure(
        &self,
        caller: &Caller,
        mailbox: &Name,
        policy: Policy,
    ) -> Answer<()> {
        self.check_open()?;
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        if !self.config().allow_unbounded_retention {
            let retention = &policy.retention;
            for (field, age) in [
                ("retention.ready_age", retention.ready_age),
                ("retention.dead_age", retention.dead_age),
            ] {
                if age.is_none() {
                    let error = Error::invalid(
                        field,
                        "none",
                        "a time: this service keeps nothing for ever",
                    );
                    return Err(error.with_mailbox(mailbox).into());
                }
            }
        }
        Ok(self.store.configure(mailbox, policy).await?)
    }

    /// Removes all messages that are not dead.
    pub(crate) async fn purge(&self, caller: &Caller, mailbox: &Name) -> Answer<u64> {
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        // Before: what is received meanwhile is not among those that go.
        let handles = self.handouts.all_of(mailbox);
        let removed = self.store.purge(mailbox).await?;
        self.handouts.forget_all(&handles);
        Ok(removed)
    }

    /// Removes a mailbox with everything in it.
    pub(crate) async fn remove(&self, caller: &Caller, mailbox: &Name) -> Answer<bool> {
        caller.may(Op::Admin, Some(mailbox), 0)?;
        caller.charge(1, 0)?;
        let handles = self.handouts.all_of(mailbox);
        let removed = self.store.remove(mailbox).await?;
        self.handouts.forget_all(&handles);
        Ok(removed)
    }
}

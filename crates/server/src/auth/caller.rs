//! Who makes a call: its capability, and from where.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use mailbox::{Name, Retry, Timestamp};
use mailbox_wire::capability::{Op, Refused, Use};

use super::Verified;
use super::bucket::Held;
use crate::failure::{Answer, Failure};

/// Whoever makes a call.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) verified: Arc<Verified>,
    /// Nothing over a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) tenant: Option<String>,
    /// Finds the call in the logs.
    pub(crate) corr_id: Arc<str>,
}

impl Caller {
    /// Whether it may do this to that mailbox; to none in particular if there is none.
    pub(crate) fn may(&self, op: Op, mailbox: Option<&Name>, bytes: u64) -> Answer<()> {
        let now_ms = Timestamp::now().as_unix_millis();
        Ok(self.verified.grant.check(&self.wanted(op, mailbox, bytes, now_ms))?)
    }

    /// Whether it may do this to some mailbox: for calls that then show only what it may see.
    pub(crate) fn may_some(&self, op: Op) -> Answer<()> {
        match self.may(op, None, 0) {
            Err(failure) if failure.reason == Some(Refused::Topic.as_str()) => Ok(()),
            other => other,
        }
    }

    /// Whether it may do anything at all, from here and now.
    pub(crate) fn may_anything(&self) -> Answer<()> {
        let mut refused = Err(Refused::Op.into());
        for op in self.verified.grant.ops().iter() {
            refused = self.may_some(op);
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    /// Whether it may settle a delivery that it got at `received_at`, if that is known: a
    /// capability that has expired since then still settles it.
    pub(crate) fn may_settle(
        &self,
        op: Op,
        mailbox: &Name,
        received_at: Option<i64>,
    ) -> Answer<()> {
        let now_ms = Timestamp::now().as_unix_millis();
        let wanted = self.wanted(op, Some(mailbox), 0, now_ms);
        let grant = &self.verified.grant;
        let got_before = |at: i64| grant.expires_at().is_some_and(|expiry| at < expiry.unix_ms());
        if grant.is_expired(now_ms) && received_at.is_some_and(got_before) {
            return Ok(grant.check_but_expiry(&wanted)?);
        }
        Ok(grant.check(&wanted)?)
    }

    fn wanted<'a>(&'a self, op: Op, mailbox: Option<&'a Name>, bytes: u64, now_ms: i64) -> Use<'a> {
        Use {
            op,
            topic: mailbox.map(Name::as_str),
            now_ms,
            ip: self.ip,
            bytes,
            tenant: self.tenant.as_deref(),
        }
    }

    /// Counts what it does against its rate and quota.
    pub(crate) fn charge(&self, ops: usize, bytes: u64) -> Answer<()> {
        match self.verified.meters.charge(ops as u64, bytes, Instant::now()) {
            Ok(()) => Ok(()),
            Err(Held::Spent) => Err(Refused::Quota.into()),
            Err(Held::For(time)) => {
                let mut failure = Failure::from(Refused::Rate);
                failure.error = failure.error.with_retry(Retry::After(time));
                Err(failure)
            }
        }
    }
}

//! Who makes a call: its capability, and from where.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mailbox::{Error, Name, Retry, Timestamp};
use mailbox_wire::capability::{Op, Refused, Use};

use super::Verified;
use super::meters::{Held, Left};
use crate::admission::Purpose;
use crate::failure::{Answer, Failure};
use crate::traces::Trace;

/// Whoever makes a call.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) verified: Arc<Verified>,
    /// Nothing over a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) tenant: Option<String>,
    /// Finds the call in the logs.
    pub(crate) corr_id: Arc<str>,
    pub(crate) trace: Trace,
}

impl Caller {
    /// Whether it may do this to that mailbox; to none in particular if there is none.
    pub(crate) fn may(&self, op: Op, mailbox: Option<&Name>, bytes: u64) -> Answer<()> {
        let now_ms = Timestamp::now().as_unix_millis();
        if let Some(mailbox) = mailbox {
            self.trace.about(op.as_str(), mailbox);
        }
        let allowed = self.verified.grant.check(&self.wanted(op, mailbox, bytes, now_ms));
        allowed.map_err(|refused| named(refused, op, mailbox))
    }

    /// Whether it may look at this mailbox, as one of many: the call is not about that one.
    pub(crate) fn may_see(&self, mailbox: &Name) -> bool {
        let now_ms = Timestamp::now().as_unix_millis();
        self.verified.grant.check(&self.wanted(Op::Admin, Some(mailbox), 0, now_ms)).is_ok()
    }

    /// Whether it may come at all: from here and now, and as often as it does. Before anything else
    /// is looked at. One that has expired may still settle what it has, and settling is what gets a
    /// consumer out of having received too much: it is not held for that.
    pub(crate) fn may_come(&self, purpose: Purpose) -> Answer<()> {
        let (grant, meters) = (&self.verified.grant, &self.verified.meters);
        let op = grant.ops().iter().next().ok_or(Refused::Op)?;
        let wanted = self.wanted(op, None, 0, Timestamp::now().as_unix_millis());
        let (allowed, counted) = match purpose {
            Purpose::Settling => (grant.check_but_expiry(&wanted), meters.check_settling()),
            _ => (grant.check(&wanted), meters.check()),
        };
        match allowed {
            Ok(()) | Err(Refused::Topic) => counted.map_err(held),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Whether it may do this to some mailbox: for calls that then show only what it may see.
    pub(crate) fn may_some(&self, op: Op) -> Answer<()> {
        match self.may(op, None, 0) {
            Err(failure) if failure.reason == Some(Refused::Topic.as_str()) => Ok(()),
            other => other,
        }
    }

    /// Whether it may do anything at all, from here; or could, and may still have to settle
    /// something.
    pub(crate) fn may_anything(&self) -> Answer<()> {
        let grant = &self.verified.grant;
        let op = grant.ops().iter().next().ok_or(Refused::Op)?;
        let wanted = self.wanted(op, None, 0, Timestamp::now().as_unix_millis());
        match grant.check_but_expiry(&wanted) {
            Ok(()) | Err(Refused::Topic) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
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
        self.trace.about(op.as_str(), mailbox);
        let wanted = self.wanted(op, Some(mailbox), 0, now_ms);
        let grant = &self.verified.grant;
        let got_before = |at: i64| grant.expires_at().is_some_and(|expiry| at < expiry.unix_ms());
        if grant.is_expired(now_ms) && received_at.is_some_and(got_before) {
            let allowed = grant.check_but_expiry(&wanted);
            return allowed.map_err(|refused| named(refused, op, Some(mailbox)));
        }
        grant.check(&wanted).map_err(|refused| named(refused, op, Some(mailbox)))
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
        self.verified.meters.charge(ops as u64, bytes).map_err(held)
    }

    /// Counts what it has done already.
    pub(crate) fn count(&self, ops: usize, bytes: u64) {
        self.verified.meters.count(ops as u64, bytes);
    }

    /// How much more it may do at this moment; nothing if there is no bound.
    pub(crate) fn left(&self) -> Option<Left> {
        self.verified.meters.left()
    }

    /// Nothing was done for what was charged.
    pub(crate) fn give_back(&self, ops: usize, bytes: u64) {
        self.verified.meters.give_back(ops as u64, bytes);
    }

    /// So many of its settlements have failed.
    pub(crate) fn missed(&self, count: usize) {
        if count > 0 {
            self.verified.meters.miss(count as u64);
        }
    }

    /// What is left of its quota is too little for one message.
    pub(crate) fn use_up(&self) {
        self.verified.meters.use_up();
    }

    /// For how long it comes too often.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        match self.verified.meters.check() {
            Err(Held::For(time)) => Some(time),
            Ok(()) | Err(Held::Spent) => None,
        }
    }
}

fn held(held: Held) -> Failure {
    match held {
        Held::Spent => Refused::Quota.into(),
        Held::For(time) => {
            let mut failure = Failure::from(Refused::Rate);
            failure.error = failure.error.with_retry(Retry::After(time));
            failure
        }
    }
}

/// Why not, with what it is that the capability does not allow.
fn named(refused: Refused, op: Op, mailbox: Option<&Name>) -> Failure {
    let failure = Failure::from(refused);
    let what = match (refused, mailbox) {
        (Refused::Op, _) => op.as_str(),
        (Refused::Topic, Some(mailbox)) => mailbox.as_str(),
        _ => return failure,
    };
    let message = format!("{}: {what}", failure.error.message());
    Failure { error: Error::new(failure.error.kind(), message), ..failure }
}

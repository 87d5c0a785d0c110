//! Making capabilities, taking them back, replacing the key. All of it needs `admin` on everything.

use std::sync::Arc;
use std::time::Duration;

use mailbox::{Error, ErrorKind, Timestamp};
use mailbox_wire::capability::{Caveat, Grant, Networks, Op, Ops, Refused, TokenId};
use mailbox_wire::json::Minted;

use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::service::Service;

impl Service {
    /// Makes a capability.
    pub(crate) fn mint(
        &self,
        caller: &Caller,
        ops: &[String],
        topics: &[String],
        ttl: Option<Duration>,
        caveats: &[String],
    ) -> Answer<Minted> {
        caller.may(Op::Admin, None, 0)?;
        caller.charge(1, 0)?;
        let mut all = vec![caveat("ops", &format!("op = {}", ops.join(",")))?];
        if !topics.is_empty() {
            all.push(caveat("topics", &format!("topic = {}", topics.join(",")))?);
        }
        for text in caveats {
            all.push(caveat("caveats", text)?);
        }
        let grant = &caller.verified.grant;
        let is_wider = |caveat: &Caveat| match caveat {
            Caveat::Ops(ops) => !ops.iter().all(|op| grant.ops().contains(op)),
            _ => false,
        };
        if all.iter().any(is_wider) {
            return Err(Refused::Op.into());
        }
        // Whatever limits a capability limits what is made with it.
        all.extend(limits(grant));
        let (capability, expires_at) = self.auth.mint_for(ttl, all)?;
        Ok(Minted {
            capability: capability.encode(),
            token_id: capability.token_id().to_string(),
            expires_at: earliest(grant, expires_at).to_string(),
        })
    }

    /// Takes back a capability; gives its id.
    pub(crate) async fn revoke(
        self: &Arc<Self>,
        caller: &Caller,
        token_id: Option<&str>,
        capability: Option<&str>,
    ) -> Answer<String> {
        caller.may(Op::Admin, None, 0)?;
        caller.charge(1, 0)?;
        let id: TokenId = match (token_id, capability) {
            (Some(id), None) => id
                .parse()
                .map_err(|_| Error::invalid("token_id", "something else", "a token id"))?,
            (None, Some(text)) => self.auth.id_of(text).map_err(|refused| {
                let error = Error::new(ErrorKind::InvalidParameter, refused.to_string());
                Failure::from(error.with_field("capability"))
            })?,
            _ => {
                let message = "name what to revoke: token_id, or capability";
                let error = Error::new(ErrorKind::InvalidParameter, message);
                return Err(error.with_field("token_id").into());
            }
        };
        let (auth, revoked) = (Arc::clone(&self.auth), id.clone());
        off_the_runtime(move || auth.revoke(&revoked)).await?;
        tracing::info!(token_id = %id, by = %caller.verified.token_id, "capability revoked");
        Ok(id.to_string())
    }

    /// Replaces the root key; gives the new one's id, and until when the old one is good.
    pub(crate) async fn rotate(
        self: &Arc<Self>,
        caller: &Caller,
        grace: Option<Duration>,
    ) -> Answer<(String, Option<Timestamp>)> {
        caller.may(Op::Admin, None, 0)?;
        caller.charge(1, 0)?;
        let auth = Arc::clone(&self.auth);
        let (kid, until) = off_the_runtime(move || auth.rotate(grace)).await?;
        tracing::info!(kid, by = %caller.verified.token_id, "root key replaced");
        Ok((kid, until))
    }
}

impl Service {
    /// The operator's capability after a rotation, for the operator itself, where no file has it.
    pub(crate) fn new_operator(&self, caller: &Caller) -> Answer<Option<String>> {
        let grant = &caller.verified.grant;
        // Whoever may do less must not get more by this.
        let is_operator = grant.ops() == Ops::all() && limits(grant).is_empty();
        if !is_operator || self.auth.is_kept() {
            return Ok(None);
        }
        Ok(Some(self.auth.operator()?.encode()))
    }
}

/// When what is made expires: with what it is made with, if that is earlier.
fn earliest(grant: &Grant, expires_at: Timestamp) -> Timestamp {
    let own = grant.expires_at().map(|at| Timestamp::from_unix_millis(at.unix_ms()));
    own.map_or(expires_at, |own| own.min(expires_at))
}

/// What limits a capability, as caveats.
fn limits(grant: &Grant) -> Vec<Caveat> {
    let mut limits: Vec<Caveat> = Vec::new();
    limits.extend(grant.expires_at().map(Caveat::Expires));
    limits.extend(grant.begins_at().map(Caveat::NotBefore));
    limits.extend(grant.max_bytes().map(Caveat::MaxBytes));
    limits.extend(grant.tenant().cloned().map(Caveat::Tenant));
    // That the operator's own is good on this machine only is what makes up for its having no end.
    let is_operators =
        |networks: &&Networks| grant.expires_at().is_none() && networks.is_loopback();
    let networks = grant.networks().iter().filter(|it| !is_operators(it));
    limits.extend(networks.cloned().map(Caveat::Networks));
    limits.extend(grant.rates().iter().copied().map(Caveat::Rate));
    let quotas = grant.quotas();
    limits.extend(quotas.ops.map(Caveat::QuotaOps));
    limits.extend(quotas.bytes.map(Caveat::QuotaBytes));
    limits
}

fn caveat(field: &'static str, text: &str) -> Answer<Caveat> {
    let read = text.parse::<Caveat>();
    Ok(read.map_err(|bad| {
        Error::new(ErrorKind::InvalidParameter, format!("{field}: {bad}")).with_field(field)
    })?)
}

/// Runs something that writes to a disk where it blocks nobody.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> mailbox::Result<T> + Send + 'static,
) -> Answer<T> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| Error::new(ErrorKind::Internal, "work was cut short"))?;
    Ok(done.map_err(|error| {
        // Where files are is nobody's business but the operator's.
        tracing::error!(error = ?error, "keys and revocations cannot be written");
        let message = "it cannot be written down: whether it holds is in doubt until it is tried \
                       again; the log says why";
        Error::new(error.kind(), message).with_retry(error.retry())
    })?)
}

//! Who is at the other end of a connection: the capability that came with its START.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use mailbox::ErrorKind;
use mailbox_wire::capability::{MAX_TEXT, Refused};
use mailbox_wire::oap::Header;

use crate::auth::{Caller, Verified};
use crate::failure::{Answer, Failure};
use crate::listen::Peer;
use crate::service::Service;
use crate::traces::Trace;

/// One client's connection.
pub(super) struct Session {
    /// Tells connections apart in the logs.
    number: u64,
    capability: Option<Bytes>,
    /// It has been good once.
    is_known: bool,
    /// Who that is, for as long as what has come is taken.
    known: Option<Known>,
    /// Why it is worth nothing, as long as nothing has changed since.
    refused: Option<(Refused, u64)>,
}

/// Who asks, as of a moment ago.
#[derive(Debug, Clone)]
pub(super) struct Known {
    verified: Arc<Verified>,
    ip: Option<IpAddr>,
    tenant: u128,
    /// When it was verified.
    pub(super) epoch: u64,
}

impl Known {
    pub(super) fn token_id(&self) -> &Arc<str> {
        &self.verified.token_id
    }

    /// It has asked for something that makes no sense, and cost something.
    pub(super) fn missed(&self) {
        self.verified.meters.miss(1);
    }

    /// Whether what it does is counted against a rate or a quota.
    pub(super) fn is_metered(&self) -> bool {
        !self.verified.meters.is_free()
    }

    /// Whether two that ask are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.verified, &other.verified) && self.tenant == other.tenant
    }
}

impl Session {
    pub(super) fn new() -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

        Self {
            number: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            capability: None,
            is_known: false,
            known: None,
            refused: None,
        }
    }

    /// The capability that holds from here on. It is looked at when something is asked.
    pub(super) fn start(&mut self, capability: Bytes) {
        (self.known, self.refused) = (None, None);
        // Of its own: the buffer it came in is much larger.
        let is_one = (1..=MAX_TEXT).contains(&capability.len());
        self.capability = match capability.len() {
            0 => None,
            // Of one that is too long nothing has to be kept to know that it is none.
            _ if !is_one => Some(Bytes::from_static(b"too long")),
            _ => Some(capability.to_vec().into()),
        };
    }

    /// Whether its capability has been good once.
    pub(super) const fn is_known(&self) -> bool {
        self.is_known
    }

    /// Finds a call in the logs: which connection, and which of its calls.
    pub(super) fn corr_id(&self, corr_id: u64) -> Arc<str> {
        // On the stack first: there is one for every call.
        let mut text = [0; 48];
        let mut rest = &mut text[..];
        let _ = write!(rest, "oap-{}-{corr_id}", self.number);
        let rest = rest.len();
        std::str::from_utf8(&text[..text.len() - rest]).unwrap_or_default().into()
    }

    /// Finds out who asks, for this as far as it is known. Each time that something comes: what was
    /// taken back meanwhile is worth nothing. Whether it may come for what it asks is not known
    /// before that is read.
    pub(super) fn know(
        &mut self,
        service: &Service,
        peer: &Peer,
        header: &Header,
    ) -> Answer<&Known> {
        let tenant = header.tenant;
        if self.known.as_ref().is_none_or(|it| it.tenant != tenant) {
            self.known = None;
            // Before it is verified: whatever is taken back from here on makes it another one.
            let epoch = service.auth.epoch();
            let capability = self.capability.as_ref().ok_or_else(no_capability)?;
            // It came once: that it comes to nothing is found out once, too.
            if let Some((refused, _)) = self.refused.filter(|(_, since)| *since == epoch) {
                return Err(refused.into());
            }
            let verified = service.auth.verify_on(capability, &peer.memo, text);
            let verified = verified.inspect_err(|it| {
                // Others may be better in a while.
                if it.is_authentication() && *it != Refused::NotYet {
                    self.refused = Some((*it, epoch));
                }
            })?;
            let known = Known { verified, ip: peer.ip, tenant, epoch };
            self.caller(&known, 0).may_anything()?;
            self.is_known = true;
            self.known = Some(known);
        }
        self.known.as_ref().ok_or_else(no_capability)
    }

    /// Whoever was found out last.
    pub(super) const fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    /// Time has passed: what was found out may not be true any more.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Whoever was found out, as the caller of one request.
    pub(super) fn caller(&self, known: &Known, corr_id: u64) -> Caller {
        Caller {
            verified: Arc::clone(&known.verified),
            ip: known.ip,
            tenant: (known.tenant != 0).then(|| format!("{:032x}", known.tenant)),
            corr_id: self.corr_id(corr_id),
            trace: Trace::default(),
        }
    }
}

/// A capability is text, as everywhere.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().map(str::trim)
}

fn no_capability() -> Failure {
    let message = "no capability: send one in the first frame with START";
    let reason = Some(Refused::Missing.as_str());
    Failure { reason, ..Failure::new(ErrorKind::Unauthorized, message) }
}

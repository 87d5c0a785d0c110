//! Who is at the other end of a connection: the capability that came with its START.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use mailbox::ErrorKind;
use mailbox_wire::capability::Refused;
use mailbox_wire::oap::Header;

use crate::admission::Purpose;
use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::listen::Peer;
use crate::service::Service;
use crate::traces::Trace;

/// One client's connection.
#[derive(Debug)]
pub(super) struct Session {
    /// Tells connections apart in the logs.
    number: u64,
    capability: Option<Bytes>,
    /// It has been good once.
    is_known: bool,
}

/// Longest capability that is looked at.
const CAPABILITY_LEN: usize = 8 * 1024;

impl Session {
    pub(super) fn new() -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

        Self {
            number: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            capability: None,
            is_known: false,
        }
    }

    /// The capability that holds from here on. It is looked at when something is asked.
    pub(super) fn start(&mut self, capability: Bytes) {
        // Of its own: the buffer it came in is much larger.
        let is_one = (1..=CAPABILITY_LEN).contains(&capability.len());
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

    /// Who asks, for this as far as it is known. Each time anew: what was taken back meanwhile is
    /// worth nothing.
    pub(super) fn caller(
        &mut self,
        service: &Service,
        peer: &Peer,
        header: &Header,
        purpose: Purpose,
    ) -> Answer<Caller> {
        let &Header { tenant, corr_id, .. } = header;
        let capability = self.capability.as_ref().ok_or_else(no_capability)?;
        let verified = service.auth.verify_on(capability, &peer.memo, text)?;
        let caller = Caller {
            verified,
            ip: peer.ip,
            tenant: (tenant != 0).then(|| format!("{tenant:032x}")),
            corr_id: self.corr_id(corr_id),
            trace: Trace::default(),
        };
        caller.may_come(purpose)?;
        self.is_known = true;
        Ok(caller)
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

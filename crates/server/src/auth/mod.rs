//! Who may do what. Every call needs a capability; nothing is allowed because of where it comes
//! from. Invariant: what was revoked, or made with a key that is gone, is refused at once in this
//! process, and within the time to live of the cache in others that share its directory.

mod bucket;
mod cache;
mod caller;
mod keys;
mod mint;
mod revoked;
mod vault;

use std::sync::Arc;
use std::time::Instant;

use mailbox::{Error, ErrorKind, Result, Timestamp};
use mailbox_wire::capability::{Capability, Grant, KeyId, Refused, TokenId};
use parking_lot::RwLock;

pub(crate) use caller::Caller;
pub use vault::{OPERATOR_FILE, Vault};

use bucket::{Buckets, Meters};
use cache::Cache;
use keys::Keys;
use revoked::Revoked;

use crate::config::CapabilityConfig;

/// Verifies, makes and takes back capabilities.
#[derive(Debug)]
pub struct Auth {
    config: RwLock<CapabilityConfig>,
    vault: Vault,
    keys: RwLock<Keys>,
    revoked: RwLock<Revoked>,
    cache: Cache,
    buckets: Buckets,
}

/// A capability that was verified.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) token_id: Arc<str>,
    /// The same, and the key it was made with: for looking whether it is still good.
    id: TokenId,
    kid: KeyId,
    pub(crate) grant: Grant,
    pub(crate) meters: Meters,
}

/// Longest text that can be a capability: base64 of the most bytes one may have.
const TEXT_LEN: usize = mailbox_wire::capability::MAX_BYTES.div_ceil(3) * 4;

impl Auth {
    /// Opens what is kept in the vault; an empty one gets a root key and the operator's capability.
    ///
    /// # Errors
    /// `Integrity` if what is there cannot be read, `Forbidden` if others may read it; whatever
    /// the file system says.
    pub fn open(vault: Vault, config: CapabilityConfig) -> Result<Arc<Self>> {
        let now = Timestamp::now();
        let (keys, is_new) = Keys::open(&vault, now)?;
        let revoked = Revoked::open(&vault)?;
        let auth = Self {
            config: RwLock::new(config),
            vault,
            keys: RwLock::new(keys),
            revoked: RwLock::new(revoked),
            cache: Cache::default(),
            buckets: Buckets::default(),
        };
        if is_new || !auth.vault.has_operator() {
            auth.write_operator()?;
        }
        Ok(Arc::new(auth))
    }

    /// Takes other settings.
    pub(crate) fn reload(&self, config: CapabilityConfig) {
        *self.config.write() = config;
        self.cache.clear();
    }

    /// What this text allows.
    pub(crate) fn verify(&self, text: &str) -> Result<Arc<Verified>, Refused> {
        let now = Instant::now();
        let ttl = self.config.read().cache_ttl;
        if let Some(verified) = self.cache.get(text, now, ttl) {
            // Its key may be worth nothing by now: grace ends while nobody looks.
            self.check_still(&verified)?;
            return Ok(verified);
        }
        let verified = self.verify_anew(text);
        match &verified {
            Ok(verified) => self.cache.put(text, verified, now, ttl),
            Err(_) => self.cache.note_refusal(now),
        }
        verified
    }

    fn verify_anew(&self, text: &str) -> Result<Arc<Verified>, Refused> {
        if text.len() > TEXT_LEN {
            return Err(Refused::Malformed);
        }
        let capability = Capability::decode(text)?;
        let grant = {
            let keys = self.keys.read();
            capability.verify(keys.find(capability.kid(), Timestamp::now()))?
        };
        let token_id = capability.token_id();
        if self.revoked.read().contains(token_id) {
            return Err(Refused::Revoked);
        }
        let meters = self.buckets.meters(token_id, &grant)?;
        let (id, kid) = (token_id.clone(), capability.kid().clone());
        Ok(Arc::new(Verified { token_id: token_id.as_str().into(), id, kid, grant, meters }))
    }

    /// Whether one that was verified some time ago has been taken back since: for those who wait.
    pub(crate) fn check_still(&self, verified: &Verified) -> Result<(), Refused> {
        if self.revoked.read().contains(&verified.id) {
            return Err(Refused::Revoked);
        }
        match self.keys.read().find(&verified.kid, Timestamp::now()) {
            Some(_) => Ok(()),
            None => Err(Refused::BadSignature),
        }
    }

    /// Takes back a capability and all that were made from it. It is on disk when this returns.
    ///
    /// # Errors
    /// Whatever the file system says; nothing is revoked then.
    pub(crate) fn revoke(&self, token_id: &TokenId) -> Result<()> {
        let mut revoked = self.revoked.write();
        revoked.add(&self.vault, token_id)?;
        drop(revoked);
        self.cache.clear();
        Ok(())
    }

    /// The id of a capability that is given as text: only of one that was made here.
    pub(crate) fn id_of(&self, text: &str) -> Result<TokenId, Refused> {
        let capability = Capability::decode(text)?;
        let keys = self.keys.read();
        match capability.verify(keys.find(capability.kid(), Timestamp::now())) {
            // One that allows nothing can be taken back all the same.
            Ok(_) | Err(Refused::Caveat) => Ok(capability.token_id().clone()),
            Err(refused) => Err(refused),
        }
    }

    /// Looks whether others have changed what is in the vault.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn refresh(&self) -> Result<()> {
        let is_revoked = self.revoked.write().refresh(&self.vault)?;
        let is_rotated = self.keys.write().refresh(&self.vault, Timestamp::now())?;
        if is_revoked || is_rotated {
            self.cache.clear();
        }
        Ok(())
    }

    /// How many capabilities are believed at the moment.
    pub(crate) fn cached(&self) -> usize {
        self.cache.len()
    }
}

/// Random bytes.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("the system gives no random numbers: {error}");
        Error::new(ErrorKind::Internal, message)
    })?;
    Ok(bytes)
}

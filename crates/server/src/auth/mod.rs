//! Who may do what. Every call needs a capability; nothing is allowed because of where it comes
//! from. Invariant: what was revoked, or made with a key that is gone, is refused at once in this
//! process, and within the time to live of the cache in others that share its directory.

mod bucket;
mod cache;
mod caller;
mod keys;
mod memo;
mod meters;
mod mint;
mod revoked;
mod spent;
mod vault;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mailbox::{Error, ErrorKind, Result, Timestamp};
use mailbox_wire::capability::{Capability, Grant, KeyId, Refused, TokenId};
use parking_lot::{Mutex, MutexGuard, RwLock};

pub(crate) use caller::Caller;
pub(crate) use memo::Memo;
pub use vault::{OPERATOR_FILE, Vault};

use cache::Cache;
use keys::Keys;
use meters::{Buckets, Meters};
use revoked::Revoked;

use crate::config::CapabilityConfig;

/// Verifies, makes and takes back capabilities.
#[derive(Debug)]
pub struct Auth {
    config: RwLock<CapabilityConfig>,
    /// From the settings, for every call.
    cache_ttl_ms: AtomicU64,
    vault: Vault,
    keys: RwLock<Keys>,
    revoked: RwLock<Revoked>,
    cache: Cache,
    buckets: Buckets,
    /// Held by whoever changes what is in the vault: those who verify do not wait for a disk.
    changing: Mutex<()>,
}

/// A capability that was verified.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) token_id: Arc<str>,
    /// The same, and the key it was made with: for looking whether it is still good.
    id: TokenId,
    kid: KeyId,
    /// Until when that key was good when this was verified.
    key_until: Option<Timestamp>,
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
            cache_ttl_ms: AtomicU64::new(millis(config.cache_ttl)),
            config: RwLock::new(config),
            vault,
            keys: RwLock::new(keys),
            revoked: RwLock::new(revoked),
            cache: Cache::default(),
            buckets: Buckets::default(),
            changing: Mutex::default(),
        };
        // Also if the process ended between making a key and making this.
        if is_new || !auth.has_operator()? {
            auth.write_operator()?;
        }
        Ok(Arc::new(auth))
    }

    /// Takes other settings.
    pub(crate) fn reload(&self, config: CapabilityConfig) {
        self.cache_ttl_ms.store(millis(config.cache_ttl), Ordering::Relaxed);
        *self.config.write() = config;
        self.cache.clear();
    }

    /// What the capability in a header allows, which came on the connection with this memo.
    pub(crate) fn verify_on(
        &self,
        header: &[u8],
        memo: &Memo,
        find: impl FnOnce(&[u8]) -> Option<&str>,
    ) -> Result<Arc<Verified>, Refused> {
        let ttl = Duration::from_millis(self.cache_ttl_ms.load(Ordering::Relaxed));
        // Before anything is looked at: whatever is revoked later makes it another one.
        let epoch = self.cache.epoch();
        if let Some(verified) = memo.get(header, ttl, epoch) {
            return Ok(verified);
        }
        let text = find(header).ok_or(Refused::Malformed)?;
        let (verified, since) = self.verify(text, ttl)?;
        // A longer one is padded with something.
        if header.len() <= TEXT_LEN + 16 {
            memo.put(header, &verified, since, epoch);
        }
        Ok(verified)
    }

    /// What this text allows, and when that was found out.
    fn verify(&self, text: &str, ttl: Duration) -> Result<(Arc<Verified>, Instant), Refused> {
        let now = Instant::now();
        if let Some((verified, since)) = self.cache.get(text, now, ttl) {
            // Its key may be worth nothing by now: grace ends while nobody looks.
            self.check_still(&verified)?;
            return Ok((verified, since));
        }
        let verified = self.verify_anew(text);
        match &verified {
            Ok(verified) => self.cache.put(text, verified, now, ttl),
            Err(_) => self.cache.note_refusal(now),
        }
        verified.map(|verified| (verified, now))
    }

    fn verify_anew(&self, text: &str) -> Result<Arc<Verified>, Refused> {
        if text.len() > TEXT_LEN {
            return Err(Refused::Malformed);
        }
        let capability = Capability::decode(text)?;
        let (grant, key_until) = {
            let keys = self.keys.read();
            let key = keys.find(capability.kid(), Timestamp::now());
            (capability.verify(key)?, keys.until(capability.kid()))
        };
        let token_id = capability.token_id();
        if self.revoked.read().contains(token_id) {
            return Err(Refused::Revoked);
        }
        let meters = self.buckets.meters(token_id, &grant)?;
        let (id, kid) = (token_id.clone(), capability.kid().clone());
        let token_id = token_id.as_str().into();
        Ok(Arc::new(Verified { token_id, id, kid, key_until, grant, meters }))
    }

    /// Changes whenever something may have been taken back.
    pub(crate) fn epoch(&self) -> u64 {
        self.cache.epoch()
    }

    /// Whether one that was verified in that epoch is still good.
    pub(crate) fn check_since(&self, verified: &Verified, epoch: u64) -> Result<(), Refused> {
        if verified.key_until.is_none() && self.epoch() == epoch {
            return Ok(());
        }
        self.check_still(verified)
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
        let changing = self.changing.lock();
        if !self.revoked.read().contains(token_id) {
            self.revoked.read().write(&self.vault, token_id)?;
            self.revoked.write().insert(token_id);
        }
        drop(changing);
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
        self.refresh_held(&self.changing.lock())
    }

    /// The same for one who changes things.
    fn refresh_held(&self, _changing: &MutexGuard<'_, ()>) -> Result<()> {
        let revoked = self.revoked.read().changed(&self.vault)?;
        let keys = self.keys.read().changed(&self.vault, Timestamp::now())?;
        let is_changed = revoked.is_some() || keys.is_some();
        if let Some(revoked) = revoked {
            *self.revoked.write() = revoked;
        }
        if let Some(keys) = keys {
            *self.keys.write() = keys;
        }
        if is_changed {
            self.cache.clear();
        }
        Ok(())
    }

    /// Whether the operator's capability is there, and made with the current key.
    fn has_operator(&self) -> Result<bool> {
        let Some(text) = self.vault.operator()? else { return Ok(false) };
        let Ok(capability) = Capability::decode(text.trim()) else { return Ok(false) };
        let keys = self.keys.read();
        let (kid, key) = keys.current();
        Ok(capability.kid() == kid && capability.verify(Some(key)).is_ok())
    }

    /// Whether keys are kept in files, and the operator finds its capability there.
    pub(crate) fn is_kept(&self) -> bool {
        self.vault.path().is_some()
    }

    /// How many capabilities are believed at the moment.
    pub(crate) fn cached(&self) -> usize {
        self.cache.len()
    }
}

impl Verified {
    /// Whether the key it was made with is still good, if nothing has changed since.
    fn is_good_at(&self, now: Timestamp) -> bool {
        self.key_until.is_none_or(|until| now < until)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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

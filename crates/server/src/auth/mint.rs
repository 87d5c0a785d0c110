//! Making capabilities, and replacing the key that they are made with.

use std::time::Duration;

use mailbox::{Error, ErrorKind, Result, Timestamp};
use mailbox_wire::capability::{Capability, Caveat, Networks, Ops, TokenId};

use zeroize::Zeroizing;

use super::keys::Keys;
use super::{Auth, OPERATOR_FILE, Vault, random};

/// Letters of token ids.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

impl Auth {
    /// Makes a capability with these caveats.
    ///
    /// # Errors
    /// `InvalidParameter` if it would be too large, or allow nothing.
    pub fn mint(&self, caveats: &[Caveat]) -> Result<Capability> {
        mint(&self.keys.read(), caveats)
    }

    /// Makes a capability that is good for so long.
    ///
    /// # Errors
    /// `InvalidParameter` if that is longer than allowed, or it would allow nothing.
    pub(crate) fn mint_for(
        &self,
        ttl: Option<Duration>,
        mut caveats: Vec<Caveat>,
    ) -> Result<(Capability, Timestamp)> {
        let most = self.config.read().max_ttl;
        let ttl = ttl.unwrap_or(most);
        if ttl.is_zero() || ttl > most {
            let bound = format_args!("1..={} s", most.as_secs());
            return Err(Error::invalid("ttl", format_args!("{} s", ttl.as_secs()), bound));
        }
        let expires_at = Timestamp::now().after(ttl);
        let ms = expires_at.as_unix_millis();
        let expires = mailbox_wire::capability::Timestamp::from_unix_ms(ms)
            .ok_or_else(|| Error::invalid("ttl", ttl.as_secs(), "up to the year 9999"))?;
        caveats.push(Caveat::Expires(expires));
        Ok((self.mint(&caveats)?, expires_at))
    }

    /// Makes a new root key. What the old one has made is good for `grace`; the operator gets a new
    /// capability.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn rotate(&self, grace: Option<Duration>) -> Result<(String, Option<Timestamp>)> {
        let grace = grace.unwrap_or(self.config.read().grace);
        let until = (!grace.is_zero()).then(|| Timestamp::now().after(grace));
        let changing = self.changing.lock();
        let mut rotated = self.keys.read().rotated(until)?;
        // The operator's first: whoever rotates must not lock itself out half-way.
        let written =
            write_operator(&self.vault, &rotated).and_then(|()| rotated.write(&self.vault));
        if let Err(error) = written {
            // What is on disk is what is good after a restart: so it must be now, for both.
            self.refresh_held(&changing)?;
            self.write_operator()?;
            return Err(error);
        }
        let kid = rotated.current().0.to_string();
        *self.keys.write() = rotated;
        self.cache.clear();
        drop(changing);
        Ok((kid, until))
    }

    /// The capability of whoever runs the service: everything, from this machine.
    ///
    /// # Errors
    /// None in practice.
    pub fn operator(&self) -> Result<Capability> {
        operator(&self.keys.read())
    }

    pub(super) fn write_operator(&self) -> Result<()> {
        // Nobody waits for the disk with the keys.
        let text = operator_text(&self.keys.read())?;
        self.vault.write(OPERATOR_FILE, &text)
    }
}

fn mint(keys: &Keys, caveats: &[Caveat]) -> Result<Capability> {
    let token_id = new_token_id()?;
    let (kid, key) = keys.current();
    Capability::mint(key, kid, &token_id, caveats).map_err(|error| {
        Error::new(ErrorKind::InvalidParameter, error.to_string()).with_field("caveats")
    })
}

fn operator(keys: &Keys) -> Result<Capability> {
    mint(keys, &[Caveat::Ops(Ops::all()), Caveat::Networks(Networks::loopback())])
}

fn write_operator(vault: &Vault, keys: &Keys) -> Result<()> {
    vault.write(OPERATOR_FILE, &operator_text(keys)?)
}

fn operator_text(keys: &Keys) -> Result<Zeroizing<String>> {
    Ok(Zeroizing::new(format!("{}\n", operator(keys)?.encode())))
}

fn new_token_id() -> Result<TokenId> {
    let random: [u8; 20] = random()?;
    let text: String =
        random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect();
    Ok(text.parse().expect("letters and digits are good in an id"))
}

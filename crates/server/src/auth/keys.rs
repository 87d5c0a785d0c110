//! Root keys: the current one, and the one before it for as long as that is still good.

use mailbox::{Error, ErrorKind, Result, Timestamp};
use mailbox_wire::capability::{KeyId, RootKey};
use zeroize::Zeroizing;

use super::random;
use super::vault::{Looks, Vault};

const FILE: &str = "root-keys";
const HEAD: &str = "# mailbox root keys: kid, key, until when it is good. Secret.";

#[derive(Debug)]
pub(super) struct Keys {
    /// The newest last.
    keys: Vec<Key>,
    looks: Option<Looks>,
}

struct Key {
    id: KeyId,
    key: RootKey,
    /// The same, to be written down.
    hex: Zeroizing<String>,
    until: Option<Timestamp>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("until", &self.until).finish()
    }
}

impl Key {
    fn new() -> Result<Self> {
        let id = hex(&random::<6>()?);
        let id = id.parse().expect("hexadecimal digits are good in an id");
        Ok(Self::from_bytes(id, *Zeroizing::new(random()?), None))
    }

    fn from_bytes(id: KeyId, bytes: [u8; RootKey::LEN], until: Option<Timestamp>) -> Self {
        Self { id, key: RootKey::from_bytes(bytes), hex: Zeroizing::new(hex(&bytes)), until }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (id, key, until) = (words.next()?, words.next()?, words.next()?);
        let until = if until == "-" { None } else { Some(until.parse().ok()?) };
        let mut bytes = Zeroizing::new([0; RootKey::LEN]);
        if key.len() != 2 * bytes.len() || words.next().is_some() || !key.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&key[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self::from_bytes(id.parse().ok()?, *bytes, until))
    }
}

impl Keys {
    /// What is in the vault; true if that was nothing, and a key was made.
    pub(super) fn open(vault: &Vault, now: Timestamp) -> Result<(Self, bool)> {
        let mut keys = Self { keys: Vec::new(), looks: None };
        if keys.refresh(vault, now)? {
            return Ok((keys, false));
        }
        keys.keys.push(Key::new()?);
        keys.write(vault)?;
        Ok((keys, true))
    }

    /// The key with this id, if it is still good.
    pub(super) fn find(&self, id: &KeyId, now: Timestamp) -> Option<&RootKey> {
        let is_good = |key: &&Key| key.id == *id && key.until.is_none_or(|until| now < until);
        self.keys.iter().find(is_good).map(|key| &key.key)
    }

    /// The key that capabilities are made with.
    pub(super) fn current(&self) -> (&KeyId, &RootKey) {
        let newest = self.keys.last().expect("there is always one");
        (&newest.id, &newest.key)
    }

    /// Makes a new key; the one before it is good until then.
    pub(super) fn rotate(&mut self, vault: &Vault, until: Option<Timestamp>) -> Result<()> {
        let new = Key::new()?;
        let old = self.keys.pop().filter(|_| until.is_some());
        let rest = std::mem::take(&mut self.keys);
        self.keys.extend(old.map(|old| Key { until, ..old }));
        self.keys.push(new);
        let written = self.write(vault);
        if written.is_err() {
            // What is on disk is what is good after a restart: so it must be now.
            self.keys = rest;
            self.looks = None;
            self.refresh(vault, Timestamp::now())?;
        }
        written
    }

    fn write(&mut self, vault: &Vault) -> Result<()> {
        let len = HEAD.len() + 1 + self.keys.len() * 160;
        let mut text = Zeroizing::new(String::with_capacity(len));
        text.push_str(HEAD);
        text.push('\n');
        for key in &self.keys {
            let until = key.until.map_or_else(|| "-".to_owned(), |until| until.to_string());
            for part in [key.id.as_str(), " ", &key.hex, " ", &until, "\n"] {
                text.push_str(part);
            }
        }
        vault.write(FILE, &text)?;
        self.looks = vault.looks(FILE)?;
        Ok(())
    }

    /// Reads the file if it is not what was read last. True if it was read.
    pub(super) fn refresh(&mut self, vault: &Vault, now: Timestamp) -> Result<bool> {
        let looks = vault.looks(FILE)?;
        if looks == self.looks {
            return Ok(false);
        }
        let Some(text) = vault.read(FILE)? else { return Ok(false) };
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let keys: Option<Vec<Key>> = lines.map(Key::parse).collect();
        let has_current = |keys: &Vec<Key>| keys.last().is_some_and(|key| key.until.is_none());
        let Some(mut keys) = keys.filter(has_current) else {
            let message = format!("the file {FILE} in the data directory is damaged");
            return Err(Error::new(ErrorKind::Integrity, message));
        };
        keys.retain(|key| key.until.is_none_or(|until| now < until));
        (self.keys, self.looks) = (keys, looks);
        Ok(true)
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

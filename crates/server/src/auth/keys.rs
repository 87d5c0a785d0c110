//! Root keys: the current one, and those before it for as long as they are still good. Invariant: a
//! key is never good for longer than the one after it.

use std::sync::Arc;

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
    keys: Vec<Kept>,
    looks: Option<Looks>,
}

/// A key, and until when it is good.
type Kept = (Arc<Key>, Option<Timestamp>);

/// Most keys that are good at a time: those before them are not any more.
const MOST: usize = 16;

struct Key {
    id: KeyId,
    key: RootKey,
    /// The same, to be written down.
    hex: Zeroizing<String>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Key {
    fn new() -> Result<Self> {
        let id = hex(&random::<6>()?);
        let id = id.parse().expect("hexadecimal digits are good in an id");
        Ok(Self::from_bytes(id, *Zeroizing::new(random()?)))
    }

    fn from_bytes(id: KeyId, bytes: [u8; RootKey::LEN]) -> Self {
        Self { id, key: RootKey::from_bytes(bytes), hex: Zeroizing::new(hex(&bytes)) }
    }

    fn parse(line: &str) -> Option<Kept> {
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
        Some((Arc::new(Self::from_bytes(id.parse().ok()?, *bytes)), until))
    }
}

impl Keys {
    /// What is in the vault; true if that was nothing, and a key was made.
    pub(super) fn open(vault: &Vault, now: Timestamp) -> Result<(Self, bool)> {
        let keys = Self { keys: Vec::new(), looks: None };
        if let Some(keys) = keys.changed(vault, now)? {
            return Ok((keys, false));
        }
        let keys = vec![(Arc::new(Key::new()?), None)];
        let looks = write(&keys, vault)?;
        Ok((Self { keys, looks }, true))
    }

    /// The key with this id, if it is still good.
    pub(super) fn find(&self, id: &KeyId, now: Timestamp) -> Option<&RootKey> {
        let is_good = |(key, until): &&Kept| key.id == *id && until.is_none_or(|it| now < it);
        self.keys.iter().find(is_good).map(|(key, _)| &key.key)
    }

    /// Until when the key with this id is good; nothing if there is no end to it.
    pub(super) fn until(&self, id: &KeyId) -> Option<Timestamp> {
        self.keys.iter().find(|(key, _)| key.id == *id).and_then(|(_, until)| *until)
    }

    /// The key that capabilities are made with.
    pub(super) fn current(&self) -> (&KeyId, &RootKey) {
        let (newest, _) = self.keys.last().expect("there is always one");
        (&newest.id, &newest.key)
    }

    /// The keys with a new one; those before it are good until then at most. Nobody knows of it
    /// before it is written.
    pub(super) fn rotated(&self, until: Option<Timestamp>) -> Result<Self> {
        let mut keys = Vec::new();
        if let Some(until) = until {
            let at_most = |own: Option<Timestamp>| own.map_or(until, |own| own.min(until));
            keys.extend(self.keys.iter().map(|(key, own)| (Arc::clone(key), Some(at_most(*own)))));
        }
        keys.push((Arc::new(Key::new()?), None));
        keys.drain(..keys.len().saturating_sub(MOST));
        Ok(Self { keys, looks: None })
    }

    pub(super) fn write(&mut self, vault: &Vault) -> Result<()> {
        self.looks = write(&self.keys, vault)?;
        Ok(())
    }

    /// Reads the file if it is not what was read last: the keys in it, if it was.
    pub(super) fn changed(&self, vault: &Vault, now: Timestamp) -> Result<Option<Self>> {
        let looks = vault.looks(FILE)?;
        if looks == self.looks {
            return Ok(None);
        }
        let Some(text) = vault.read(FILE)? else { return Ok(None) };
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let keys: Option<Vec<Kept>> = lines.map(Key::parse).collect();
        let has_current = |keys: &Vec<Kept>| keys.last().is_some_and(|(_, until)| until.is_none());
        let Some(mut keys) = keys.filter(has_current) else {
            let message = format!("the file {FILE} in the data directory is damaged");
            return Err(Error::new(ErrorKind::Integrity, message));
        };
        keys.retain(|(_, until)| until.is_none_or(|until| now < until));
        Ok(Some(Self { keys, looks }))
    }
}

fn write(keys: &[Kept], vault: &Vault) -> Result<Option<Looks>> {
    let len = HEAD.len() + 1 + keys.len() * 160;
    let mut text = Zeroizing::new(String::with_capacity(len));
    text.push_str(HEAD);
    text.push('\n');
    for (key, until) in keys {
        let until = until.map_or_else(|| "-".to_owned(), |until| until.to_string());
        for part in [key.id.as_str(), " ", &key.hex, " ", &until, "\n"] {
            text.push_str(part);
        }
    }
    vault.write(FILE, &text)?;
    vault.looks(FILE)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

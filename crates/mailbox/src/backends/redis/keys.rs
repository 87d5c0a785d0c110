//! What the keys of a mailbox are called, and which slot of a cluster they are in. Invariant: all
//! keys of a mailbox have the same hash tag, so one script can use them all.

use std::sync::Arc;

use crate::name::Name;

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// What comes behind the hash tag, in the order in which scripts take their keys. The first four
/// are shared with others who know nothing of the rest.
pub(crate) const PARTS: [&str; 15] = [
    "pending",
    "invisible",
    "data",
    "meta",
    "delayed",
    "ages",
    "waiting",
    "heads",
    "dead",
    "graves",
    "known",
    "known_until",
    "state",
    "rules",
    "gone",
];

/// The line of those that can be received.
const PENDING: usize = 0;
/// Those that are out of sight, by when they come back.
const INVISIBLE: usize = 1;
const STATE: usize = 12;
const RULES: usize = 13;

/// The keys of one mailbox. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    names: Arc<[String; PARTS.len()]>,
    /// Which slot of a cluster they are in.
    pub(crate) slot: u16,
}

impl Keys {
    pub(crate) fn of(prefix: &str, mailbox: &Name) -> Self {
        let tag = format!("{prefix}queue:{mailbox}");
        let slot = crc16(tag.as_bytes()) % SLOTS;
        Self { names: Arc::new(PARTS.map(|part| format!("{{{tag}}}:{part}"))), slot }
    }

    pub(crate) fn all(&self) -> &[String] {
        &*self.names
    }

    pub(crate) fn pending(&self) -> &str {
        &self.names[PENDING]
    }

    pub(crate) fn invisible(&self) -> &str {
        &self.names[INVISIBLE]
    }

    pub(crate) fn state(&self) -> &str {
        &self.names[STATE]
    }

    pub(crate) fn rules(&self) -> &str {
        &self.names[RULES]
    }
}

/// A pattern for all keys of all mailboxes under a prefix.
pub(crate) fn pattern(prefix: &str) -> String {
    let mut pattern = String::from("{");
    for letter in prefix.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "queue:*}:*"
}

/// Which mailbox a key belongs to.
pub(crate) fn owner(prefix: &str, key: &[u8]) -> Option<Name> {
    let key = std::str::from_utf8(key).ok()?;
    let (tag, part) = key.strip_prefix('{')?.split_once("}:")?;
    let name = tag.strip_prefix(prefix)?.strip_prefix("queue:")?;
    PARTS.contains(&part).then(|| Name::parse(name).ok())?
}

/// The checksum by which a cluster spreads keys (CRC-16/XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_where_a_cluster_looks_for_it() {
        // What `CLUSTER KEYSLOT` says of `{queue:jobs}:pending` and of the specification's example.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        let jobs = Keys::of("", &Name::parse("jobs").unwrap());
        assert_eq!(jobs.slot, 10_197);
        assert_eq!(jobs.pending(), "{queue:jobs}:pending");
    }

    #[test]
    fn a_key_leads_back_to_its_mailbox() {
        let name = Name::parse("user:42:inbox").unwrap();
        for prefix in ["", "tenant-a:", "a.b:"] {
            for key in Keys::of(prefix, &name).all() {
                assert_eq!(owner(prefix, key.as_bytes()), Some(name.clone()), "{key}");
            }
        }
        for foreign in ["jobs", "{queue:jobs}:other", "{jobs}:pending", "{queue:a b}:data"] {
            assert_eq!(owner("", foreign.as_bytes()), None, "{foreign}");
        }
        assert_eq!(owner("a:", b"{queue:jobs}:data"), None);
        assert_eq!(pattern("a*:"), r"{a\*:queue:*}:*");
    }
}

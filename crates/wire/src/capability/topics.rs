//! Which topics a capability is for. A pattern is a whole name, or a prefix that says so by its
//! final `*`: `orders` never allows `orders-eu`.

use std::fmt;
use std::str::FromStr;

use super::caveat::BadCaveat;

/// Longest topic, as longest mailbox name.
const MAX_NAME: usize = 80;

/// A list of names and prefixes, never empty, written `jobs,tenant-a:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Name(String),
    Prefix(String),
}

impl Topics {
    /// Whether `topic` is one of them.
    #[must_use]
    pub fn contains(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Pattern::Name(name) => topic == name,
            Pattern::Prefix(prefix) => topic.starts_with(prefix.as_str()),
        })
    }

    /// Whether every topic is, also those that do not exist yet.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.iter().any(|pattern| matches!(pattern, Pattern::Prefix(prefix) if prefix.is_empty()))
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let is_name = |text: &str| {
            text.len() <= MAX_NAME
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
        };
        match text.strip_suffix('*') {
            Some(prefix) => is_name(prefix).then(|| Self::Prefix(prefix.to_owned())),
            None => (!text.is_empty() && is_name(text)).then(|| Self::Name(text.to_owned())),
        }
    }
}

impl FromStr for Topics {
    type Err = BadCaveat;

    fn from_str(text: &str) -> Result<Self, BadCaveat> {
        let patterns = text.split(',').map(Pattern::parse).collect::<Option<Vec<_>>>();
        patterns.map(Self).ok_or(BadCaveat::Topics)
    }
}

impl fmt::Display for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pattern) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match pattern {
                Pattern::Name(name) => write!(f, "{comma}{name}")?,
                Pattern::Prefix(prefix) => write!(f, "{comma}{prefix}*")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(patterns: &str, topic: &str) -> bool {
        patterns.parse::<Topics>().unwrap().contains(topic)
    }

    #[test]
    fn a_name_allows_itself_alone_and_a_prefix_what_starts_with_it() {
        assert!(allows("orders", "orders"));
        assert!(!allows("orders", "orders-eu"));
        assert!(!allows("orders", "order"));
        assert!(!allows("orders", "Orders"));
        assert!(allows("tenant-a:*", "tenant-a:jobs"));
        assert!(allows("tenant-a:*", "tenant-a:"));
        assert!(!allows("tenant-a:*", "tenant-ab:jobs"));
        assert!(!allows("tenant-a:*", "tenant-a"));
        assert!(allows("jobs,mail.*", "mail.out"));
        assert!(allows("jobs,mail.*", "jobs"));
        assert!(!allows("jobs,mail.*", "jobs.x"));
        assert!(allows("*", "anything"));
    }

    #[test]
    fn only_a_lone_star_allows_every_topic() {
        let is_all = |patterns: &str| patterns.parse::<Topics>().unwrap().is_all();
        assert!(is_all("*"));
        assert!(is_all("jobs,*"));
        assert!(!is_all("jobs"));
        assert!(!is_all("a*"));
    }

    #[test]
    fn a_star_stands_last_or_not_at_all() {
        let long = "a".repeat(81);
        for bad in ["", ",", "a,", ",a", "a, b", "*a", "a*b", "**", "a**", "a b", "a/b", "é", &long]
        {
            assert_eq!(bad.parse::<Topics>(), Err(BadCaveat::Topics), "{bad:?}");
        }
    }
}

//! Attributes of a message. Invariants: a key is there once; a document that says it twice is
//! refused, because two readers could take it for two different messages. And not more of them are
//! read than a message may have, see [`bounds`](crate::bounds).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::ATTRIBUTES;

/// A map from text to text, sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// As a map.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl From<BTreeMap<String, String>> for Attributes {
    fn from(map: BTreeMap<String, String>) -> Self {
        Self(map)
    }
}

impl<const N: usize> From<[(String, String); N]> for Attributes {
    fn from(pairs: [(String, String); N]) -> Self {
        Self(pairs.into())
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Attributes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a map from text to text with at most {ATTRIBUTES} entries")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
                let mut attributes = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if attributes.len() == ATTRIBUTES {
                        return Err(A::Error::invalid_length(ATTRIBUTES + 1, &self));
                    }
                    if attributes.insert(key, value).is_some() {
                        return Err(A::Error::custom("an attribute is there twice"));
                    }
                }
                Ok(Attributes(attributes))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_is_there_twice_is_refused() {
        let read = serde_json::from_str::<Attributes>;
        assert_eq!(read(r#"{"b":"2","a":"1"}"#).unwrap().iter().next(), Some(("a", "1")));
        assert!(read(r#"{"a":"1","a":"1"}"#).is_err());
        assert!(read(r#"{"a":1}"#).is_err());
    }

    #[test]
    fn no_more_attributes_are_read_than_a_message_may_have() {
        let read = |count: usize| {
            let pairs: Vec<_> = (0..count).map(|key| format!("\"{key}\":\"\"")).collect();
            serde_json::from_str::<Attributes>(&format!("{{{}}}", pairs.join(",")))
        };
        assert_eq!(read(ATTRIBUTES).unwrap().len(), ATTRIBUTES);
        let why = read(ATTRIBUTES + 1).unwrap_err().to_string();
        assert!(why.contains("with at most 128 entries"), "{why}");
    }
}

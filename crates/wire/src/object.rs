//! JSON objects that are nothing else. Invariants: a list is not taken for the fields of an object
//! in their order, which no reader of the schema would expect; and a list of objects has an end,
//! see [`bounds`](crate::bounds).

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::bounds::{OBJECTS, TEXTS};

/// Something that is an object in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// What a list may be made of.
pub(crate) trait Listed {
    /// How many attributes are in it: they count for all of the list together.
    fn attributes(&self) -> usize {
        0
    }
}

/// A list of objects.
pub(crate) fn objects<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de> + Listed,
    D: Deserializer<'de>,
{
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de> + Listed> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {OBJECTS} objects with {TEXTS} attributes in all")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut objects = Vec::new();
            let mut attributes = 0;
            while let Some(Object(it)) = list.next_element::<Object<T>>()? {
                attributes += it.attributes();
                if objects.len() == OBJECTS || attributes > TEXTS {
                    return Err(A::Error::invalid_length(objects.len() + 1, &self));
                }
                objects.push(it);
            }
            Ok(objects)
        }
    }

    deserializer.deserialize_seq(List(PhantomData))
}

/// An object, or nothing.
pub(crate) fn maybe_object<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(it)| it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{ReceiveRequest, SendBatchRequest, SettleBatchRequest};

    #[test]
    fn a_list_is_no_object() {
        let read = |text| serde_json::from_str::<Object<ReceiveRequest>>(text).is_ok();
        assert!(read(r#"{"topic":"jobs"}"#));
        assert!(!read(r#"["jobs"]"#));
        assert!(!read(r#"{"topic":"jobs","wait":1}"#), "fields are still looked at");
        let batch = r#"{"messages":[["jobs",""]]}"#;
        assert!(serde_json::from_str::<SendBatchRequest>(batch).is_err());
        assert!(serde_json::from_str::<SettleBatchRequest>(r#"{"items":[["ack"]]}"#).is_err());
    }

    #[test]
    fn a_list_has_an_end() {
        let batch = |len: usize| {
            let items = vec![r#"{"op":"ack"}"#; len].join(",");
            serde_json::from_str::<SettleBatchRequest>(&format!("{{\"items\":[{items}]}}"))
        };
        assert_eq!(batch(OBJECTS).unwrap().items.len(), OBJECTS);
        assert!(batch(OBJECTS + 1).is_err());
    }

    #[test]
    fn attributes_of_a_list_have_an_end_together() {
        let each = 100;
        let pairs: Vec<_> = (0..each).map(|key| format!("\"{key}\":\"\"")).collect();
        let message = format!(r#"{{"payload_b64":"","attrs":{{{}}}}}"#, pairs.join(","));
        let batch = |len: usize| {
            let messages = vec![&*message; len].join(",");
            serde_json::from_str::<SendBatchRequest>(&format!("{{\"messages\":[{messages}]}}"))
        };
        let most = TEXTS / each;
        let attributes = |batch: SendBatchRequest| -> usize {
            batch.messages.iter().map(Listed::attributes).sum()
        };
        assert_eq!(attributes(batch(most).unwrap()), TEXTS);
        let why = batch(most + 1).unwrap_err().to_string();
        let expected = "invalid length 201, expected a list of at most 1024 objects with 20000";
        assert!(why.starts_with(expected), "{why}");
    }
}

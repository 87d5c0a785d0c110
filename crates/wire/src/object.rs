//! JSON objects that are nothing else. Invariant: a list is not taken for the fields of an object
//! in their order, which no reader of the schema would expect.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

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

/// Longest list that is read: more than any call takes. What is a few bytes in a document can be
/// hundreds in memory.
const LIST_LEN: usize = 1024;

/// A list of objects.
pub(crate) fn objects<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {LIST_LEN} objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut objects = Vec::new();
            while let Some(Object(it)) = list.next_element()? {
                if objects.len() == LIST_LEN {
                    return Err(A::Error::invalid_length(LIST_LEN + 1, &self));
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
        assert_eq!(batch(LIST_LEN).unwrap().items.len(), LIST_LEN);
        assert!(batch(LIST_LEN + 1).is_err());
    }
}

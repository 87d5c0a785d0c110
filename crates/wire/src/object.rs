//! JSON objects that are nothing else. Invariant: a list is not taken for the fields of an object
//! in their order, which no reader of the schema would expect.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

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

/// A list of objects.
pub(crate) fn objects<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|Object(it)| it).collect())
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
}

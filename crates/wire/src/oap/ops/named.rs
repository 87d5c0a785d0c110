//! Objects in which one field says what the others are.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess,
    Visitor,
};

/// The field.
const OP: &str = "op";

/// What the document is about. It is read only so far: that may be long before its end, and what is
/// wrong with the rest is found when the rest is read.
pub(super) fn op_of(document: &[u8]) -> Option<Cow<'_, str>> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_slice(document);
    // An error whenever something is left.
    let _ = reader.deserialize_map(Finder(&mut found));
    found
}

/// Looks for the field.
struct Finder<'a, 'de>(&'a mut Option<Cow<'de, str>>);

impl<'de> Visitor<'de> for Finder<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            if key == OP {
                let Text(op) = map.next_value()?;
                *self.0 = Some(op);
                return Ok(());
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// An object without that field, which may be there once.
pub(super) struct BesideOp<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BesideOp<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = BesideOp<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BesideOp<T>, A::Error> {
                let others = Others { map, has_op: false };
                T::deserialize(MapAccessDeserializer::new(others)).map(BesideOp)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Others<A> {
    map: A,
    has_op: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Others<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(Text(key)) = self.map.next_key()? {
            if key != OP {
                let key: CowStrDeserializer<'_, A::Error> = key.into_deserializer();
                return seed.deserialize(key).map(Some);
            }
            if self.has_op {
                return Err(A::Error::duplicate_field(OP));
            }
            self.has_op = true;
            self.map.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Text that stays where it is, unless something in it is escaped.
struct Text<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_op_is_found_wherever_it_is() {
        for document in [
            r#"{"op":"send"}"#,
            r#" { "a" : [{"op":1}] , "op" : "send" , "b" : 1 }"#,
            r#"{"\u006fp":"sen\u0064"}"#,
            // What follows is looked at later.
            r#"{"op":"send","#,
        ] {
            assert_eq!(op_of(document.as_bytes()).as_deref(), Some("send"), "{document}");
        }
        for document in ["", "{}", "[\"op\",\"send\"]", r#"{"op":7}"#, r#"{"a":{"op":"send"}}"#] {
            assert_eq!(op_of(document.as_bytes()), None, "{document}");
        }
    }
}

//! Lists of texts in JSON. Invariant: they have an end, see [`bounds`](crate::bounds).

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use crate::bounds::TEXTS;

/// Not more than [`TEXTS`].
struct Texts(Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {TEXTS} texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    if texts.len() == TEXTS {
                        return Err(A::Error::invalid_length(TEXTS + 1, &self));
                    }
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// A list of texts.
pub(crate) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Texts::deserialize(deserializer).map(|Texts(texts)| texts)
}

/// A list of texts, or nothing.
pub(crate) fn maybe_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    Ok(Option::<Texts>::deserialize(deserializer)?.map(|Texts(texts)| texts))
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::json::{DeadRequest, LookUpRequest, MintRequest};

    /// How many texts are read of a document that has some more, or why none are.
    fn read<T: DeserializeOwned>(
        before: &str,
        count: usize,
        texts: fn(T) -> Vec<String>,
    ) -> Result<usize, String> {
        let list = vec!["\"\""; count].join(",");
        let document = format!("{{{before}:[{list}]}}");
        let read = serde_json::from_str::<T>(&document).map(|it| texts(it).len());
        read.map_err(|error| error.to_string())
    }

    #[track_caller]
    fn assert_bounded<T: DeserializeOwned>(before: &str, texts: fn(T) -> Vec<String>) {
        assert_eq!(read(before, 0, texts), Ok(0));
        assert_eq!(read(before, TEXTS, texts), Ok(TEXTS));
        let why = read(before, TEXTS + 1, texts).unwrap_err();
        let expected = "invalid length 20001, expected a list of at most 20000 texts";
        assert!(why.starts_with(expected), "{why}");
    }

    #[test]
    fn a_list_of_texts_has_an_end() {
        assert_bounded::<LookUpRequest>("\"msg_ids\"", |it| it.msg_ids);
        assert_bounded::<DeadRequest>("\"topic\":\"\",\"msg_ids\"", |it| it.msg_ids.unwrap());
        assert_bounded::<MintRequest>("\"ops\"", |it| it.ops);
        assert_bounded::<MintRequest>("\"ops\":[],\"topics\"", |it| it.topics);
        assert_bounded::<MintRequest>("\"ops\":[],\"caveats\"", |it| it.caveats);
    }

    #[test]
    fn no_list_is_not_an_empty_one() {
        let read = |rest| serde_json::from_str::<DeadRequest>(&format!("{{\"topic\":\"\"{rest}}}"));
        for (rest, expected) in [
            ("", None),
            (",\"msg_ids\":null", None),
            (",\"msg_ids\":[]", Some(Vec::new())),
            (",\"msg_ids\":[\"a\"]", Some(vec!["a".to_owned()])),
        ] {
            assert_eq!(read(rest).unwrap().msg_ids, expected, "{rest}");
        }
        assert!(read(",\"msg_ids\":\"a\"").is_err() && read(",\"msg_ids\":[1]").is_err());
    }
}

//! What is wrong with a JSON document, for whoever sent it. Invariant: nothing that stands in the
//! document is repeated, because it may be somebody's message; only names of fields are, if they
//! look like one.

use serde_json::Error;
use serde_json::error::Category;

/// What stands for something that is not repeated.
const HIDDEN: &str = "...";
/// Longest name that is repeated.
const NAME_LEN: usize = 40;

/// What is wrong, and where.
#[must_use]
pub fn unreadable(error: &Error) -> String {
    let (line, column) = (error.line(), error.column());
    let what = match error.classify() {
        Category::Data => without_values(&error.to_string()),
        Category::Eof => "the document is not complete".to_owned(),
        Category::Syntax | Category::Io => "this is no JSON".to_owned(),
    };
    format!("{what} (line {line} column {column})")
}

/// Names of fields and types, and what was expected.
fn without_values(text: &str) -> String {
    let end = text.rfind(" at line ").unwrap_or(text.len());
    let text = &text[..end];
    for unknown in ["unknown field `", "unknown variant `"] {
        if let Some(rest) = text.strip_prefix(unknown) {
            // What follows the last mark was not in the document.
            let marks = ["`, expected ", "`, there are no "];
            let end = marks.iter().filter_map(|mark| rest.rfind(mark)).max();
            let (name, expected) = rest.split_at(end.unwrap_or(rest.len()));
            return format!("{unknown}{}{expected}", shown(name));
        }
    }
    // A text may have quotes in it, so all is hidden from the first to the last.
    match (text.find('"'), text.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            format!("{}\"{HIDDEN}\"{}", &text[..first], &text[last + 1..])
        }
        _ => text.to_owned(),
    }
}

/// A name, if it looks like one that somebody has only misspelt.
fn shown(name: &str) -> &str {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.len() <= NAME_LEN && name.bytes().all(is_name) { name } else { HIDDEN }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::json::{ReceiveRequest, SendRequest, SettleItem};
    use crate::object::Object;

    fn told<T: for<'de> Deserialize<'de>>(document: &str) -> String {
        let read = serde_json::from_str::<Object<T>>(document).map(|_| ());
        unreadable(&read.unwrap_err())
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (document, expected) in [
            (r#"{"topic":7}"#, "invalid type: integer `7`, expected a string (line 1 column 10)"),
            (r#"{"topic":"a""#, "the document is not complete (line 1 column 12)"),
            (r#"{"topic":"a"]"#, "this is no JSON (line 1 column 13)"),
            ("{}", "missing field `topic` (line 1 column 2)"),
            ("[]", "invalid type: sequence, expected an object (line 1 column 0)"),
        ] {
            assert_eq!(told::<ReceiveRequest>(document), expected);
        }
        let told = told::<ReceiveRequest>(r#"{"topics":"a"}"#);
        assert!(told.starts_with("unknown field `topics`, expected one of `topic`, "), "{told}");
    }

    #[test]
    fn nothing_of_the_document_is_repeated() {
        for document in [
            r#"{"topic":"a","payload_b64":"secret"}"#,
            r#"{"topic":"a","payload_b64":"QQ==","delay_ms":"secret"}"#,
            r#"{"topic":"a","payload_b64":"QQ==","delay_ms":"a\" secret \"b"}"#,
            r#"{"topic":"a","payload_b64":"QQ==","delay_ms":"\" at line secret"}"#,
            r#"{"topic":"a","a secret":1}"#,
            r#"{"topic":"a","`, expected secret":1}"#,
            r#"{"topic":"a","x`, expected `secret":1}"#,
            r#"{"topic":"a","x\" secret \"":1}"#,
        ] {
            let told = told::<SendRequest>(document);
            assert!(!told.contains("secret"), "{document}: {told}");
        }
        let told = told::<SettleItem>(r#"{"op":"some secret"}"#);
        assert!(told.starts_with("unknown variant `...`, expected one of `ack`, "), "{told}");
    }
}

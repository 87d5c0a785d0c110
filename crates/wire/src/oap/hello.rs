//! How two sides get to know each other: who asks, and what the service understands.

use serde::{Deserialize, Serialize};

use super::ops::BadOp;
use super::{Flags, MAX_FRAME, MAX_INFLIGHT, VERSION};
use crate::object::Object;
use crate::texts::texts;

/// Longest hello, white space included.
const HELLO_LEN: usize = 16 * 1024;
/// Longest name of a client.
const NAME_LEN: usize = 256;

/// What a client says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Its name, for people.
    pub ua: String,
}

impl Hello {
    /// What the payload of a hello says.
    ///
    /// # Errors
    /// It is no such object, or it or the name is too long.
    pub fn read(document: &[u8]) -> Result<Self, BadOp> {
        if document.len() > HELLO_LEN {
            return Err(BadOp::field("ua", format!("a hello is longer than {HELLO_LEN} bytes")));
        }
        let read = serde_json::from_slice::<Object<Self>>(document);
        let Object(hello) = read.map_err(|error| BadOp::unreadable(&error))?;
        if hello.ua.len() > NAME_LEN {
            return Err(BadOp::field("ua", format!("`ua` is longer than {NAME_LEN} bytes")));
        }
        Ok(hello)
    }
}

/// What a service says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloAnswer {
    /// Longest frame, header included.
    pub max_frame: u32,
    /// Most requests that are not answered.
    pub max_inflight: u32,
    /// The bits of the flags that are understood.
    pub flags_supported: u16,
    /// Versions that are spoken.
    pub versions: Vec<u16>,
    /// Ways to it, such as `tcp+tls`.
    #[serde(deserialize_with = "texts")]
    pub transports: Vec<String>,
}

impl HelloAnswer {
    /// Of a service that is reached in this way: `tcp` or `tcp+tls`.
    #[must_use]
    pub fn new(transport: &str) -> Self {
        Self {
            max_frame: MAX_FRAME as u32,
            max_inflight: MAX_INFLIGHT as u32,
            flags_supported: Flags::ALL.bits(),
            versions: vec![VERSION],
            transports: vec![transport.to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_is_answered_as_the_protocol_says() {
        let answer = serde_json::to_string(&HelloAnswer::new("tcp+tls")).unwrap();
        let expected = "{'max_frame':1048576,'max_inflight':64,'flags_supported':255,\
                        'versions':[1],'transports':['tcp+tls']}";
        assert_eq!(answer, expected.replace('\'', "\""));
        assert_eq!(
            serde_json::from_str::<HelloAnswer>(&answer).unwrap(),
            HelloAnswer::new("tcp+tls")
        );
        let hello = Hello { ua: "sdk/0.1".to_owned() };
        let written = serde_json::to_string(&hello).unwrap();
        assert_eq!(written, r#"{"ua":"sdk/0.1"}"#);
        assert_eq!(Hello::read(written.as_bytes()), Ok(hello));
    }

    #[test]
    fn hello_says_who_it_is_and_nothing_else() {
        let long = format!(r#"{{"ua":"{}"}}"#, "x".repeat(NAME_LEN + 1));
        assert_eq!(Hello::read(long.as_bytes()).unwrap_err().which(), Some("ua"));
        for bad in ["", "{}", r#"["sdk"]"#, r#"{"ua":1}"#, r#"{"ua":"a","b":1}"#] {
            assert!(Hello::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}

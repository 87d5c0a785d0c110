//! A capability as it can be shown to a service, through whichever door. Invariant: what no
//! capability can look like is shown to nobody; whether one is good is for the service to say.

use mailbox_wire::capability::MAX_TEXT;

use crate::error::{Error, ErrorKind, Result};

/// Where capabilities come from.
pub(super) const SOURCES: &str = "the environment variable MAILBOX_CAP, the option cap_file of an \
                                  address, or RemoteConfig::with_capability";

/// The capability by itself, without what is around it. An empty one is none.
pub(super) fn checked(capability: &str) -> Result<&str> {
    let capability = capability.trim();
    let why = match capability {
        it if it.len() > MAX_TEXT => format!("is longer than {MAX_TEXT} bytes"),
        it if !it.bytes().all(|byte| byte.is_ascii_graphic()) => {
            "has signs in it that none can have".to_owned()
        }
        it => return Ok(it),
    };
    // Not what it is: it may be one but for a sign.
    let message = format!("the capability {why}: it comes from {SOURCES}");
    Err(Error::new(ErrorKind::Unauthorized, message).with_field("capability"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::remote::{RemoteBackend, RemoteConfig};

    #[test]
    fn what_is_around_a_capability_is_not_part_of_it() {
        let longest = "x".repeat(MAX_TEXT);
        for (text, expected) in
            [("", ""), (" \n", ""), (" a.b-c= \r\n", "a.b-c="), (&longest, &longest)]
        {
            assert_eq!(checked(text).unwrap(), expected);
        }
    }

    /// It was a bad parameter, or went out and came back as too large or as refused, depending on
    /// the protocol.
    #[tokio::test]
    async fn what_can_be_no_capability_is_shown_to_nobody_through_any_door() {
        // Nobody is there: who tried would be told so.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        drop(listener);
        let doors =
            [("http", true), ("grpc", cfg!(feature = "grpc")), ("oap", cfg!(feature = "oap"))];
        for (scheme, _) in doors.into_iter().filter(|(_, is_built)| *is_built) {
            let url = format!("{scheme}://{place}");
            for text in ["sec ret", "sec\nret", "sécret", "sec\0ret", &"s".repeat(20_000)] {
                let config = RemoteConfig::default().with_capability(text);
                let error = RemoteBackend::open_with(&url, config).await.unwrap_err();
                let found = (error.kind(), error.field());
                let expected = (ErrorKind::Unauthorized, Some("capability"));
                assert_eq!(found, expected, "{scheme}: {error:?}");
                let message = error.to_string();
                assert!(
                    message.contains("MAILBOX_CAP") && message.contains("cap_file"),
                    "{message}"
                );
                assert!(!message.contains(text), "{message}");
            }
        }
    }
}

//! Where replies may go. A reply address comes out of a message, so it is a stranger's. Invariant:
//! without being told otherwise nothing is opened but mailboxes beside the one that is worked on.

use std::sync::Arc;

use bytes::Bytes;
use mailbox::resolver::AllowList;
use mailbox::{
    Address, Backend, Error, ErrorKind, MessageId, Name, Outgoing, Result, open_backend,
};

use crate::local;
use crate::output::tamed;
use crate::place::Place;

/// The attribute of a reply that says which message it answers.
const IN_REPLY_TO: &str = "in_reply_to";

/// Sends replies.
#[derive(Debug)]
pub(super) struct Replies {
    backend: Arc<dyn Backend>,
    own: Address,
    allowed: AllowList,
}

impl Replies {
    /// To mailboxes beside `place`, and to where these rules allow.
    pub(super) fn new(place: &Place, rules: &[String]) -> Result<Self> {
        let allowed = rules.iter().try_fold(AllowList::new(), |list, rule| allow(list, rule))?;
        let (backend, own) = (Arc::clone(&place.backend), place.address.clone());
        Ok(Self { backend, own, allowed })
    }

    /// Sends a reply; it is kept when this returns.
    pub(super) async fn send(&self, to: &str, payload: Bytes, request: &MessageId) -> Result<()> {
        let mut reply = Outgoing::new(payload);
        reply.attributes.insert(IN_REPLY_TO.to_owned(), request.to_string());
        match self.beside(to)? {
            Ok(name) => send(&*self.backend, &name, reply).await,
            Err(elsewhere) => {
                self.allowed.check(&elsewhere).map_err(|error| hinted(&error, &elsewhere))?;
                let backend = open_backend(&elsewhere).await?;
                let sent = send(&*backend, elsewhere.name(), reply).await;
                let closed = backend.close().await;
                sent.and(closed)
            }
        }
    }

    /// The name of a mailbox beside the own one, or an address somewhere else.
    fn beside(&self, to: &str) -> Result<Result<Name, Address>> {
        if !Address::has_scheme(to) {
            let name = Name::parse(to).map_err(|error| Error::resolution(to, error))?;
            return Ok(Ok(name));
        }
        let address = Address::parse(to).map_err(|error| Error::resolution(to, error))?;
        let is_written_alike = address.scheme() == self.own.scheme()
            && address.place() == self.own.place()
            && address.options().is_empty();
        if is_written_alike || self.backend.address(address.name()) == to {
            return Ok(Ok(address.name().clone()));
        }
        Ok(Err(address))
    }
}

/// Says how to allow it. Of what is no path only the scheme is shown: there may be a secret in it.
fn hinted(error: &Error, address: &Address) -> Error {
    let scheme = address.scheme();
    let rule = match address.is_path() {
        true => format!("{scheme}:{}", tamed(address.place(), 200)),
        false => format!("{scheme}://HOST"),
    };
    let message = format!("{}; `--allow-reply {rule}` would allow it", error.message());
    Error::new(error.kind(), message)
}

async fn send(backend: &dyn Backend, name: &Name, reply: Outgoing) -> Result<()> {
    let mut sent = backend.send(name, vec![reply]).await?;
    let sent = sent.pop().unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "no answer")));
    sent.map(|_| ())
}

/// Reads a rule: `SCHEME:` for any place, `SCHEME:PATH`, or `SCHEME://HOST`.
fn allow(list: AllowList, rule: &str) -> Result<AllowList> {
    let refuse = || {
        let message =
            format!("--allow-reply {rule:?}: write SCHEME:PATH, SCHEME://HOST or SCHEME:");
        Error::new(ErrorKind::InvalidParameter, message).with_field("allow-reply")
    };
    let (scheme, place) = rule.split_once(':').ok_or_else(refuse)?;
    let is_path = Address::parse(&format!("{scheme}:x")).is_ok_and(|it| it.is_path());
    let place = place.strip_prefix("//").unwrap_or(place);
    if place.is_empty() && local::is_of_service(scheme) {
        let message = format!("--allow-reply {rule:?}: name the host: MAILBOX_CAP is sent there");
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("allow-reply"));
    }
    let allowed = match (place, is_path) {
        ("", _) => list.allow_scheme(scheme),
        (path, true) => list.allow_path(scheme, path),
        (host, false) => list.allow_host(scheme, host.trim_end_matches('/')),
    };
    allowed.map_err(|error| refuse().with_source(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn replies(rules: &[&str]) -> Replies {
        let address = Address::parse("memory://jobs").unwrap();
        let place = Place::open(address, crate::place::Making::Yes).await.unwrap();
        let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        Replies::new(&place, &rules).unwrap()
    }

    #[tokio::test]
    async fn mailboxes_beside_are_replied_to_and_others_are_not() {
        let replies = replies(&[]).await;
        let request = MessageId::from_text("1");
        for to in ["answers", "memory://answers"] {
            replies.send(to, Bytes::from_static(b"a"), &request).await.unwrap();
        }
        for to in ["dir:elsewhere/x", "redis://h/x", "memory://m9/x", "memory://x?a=b", "", "a b"] {
            let error = replies.send(to, Bytes::new(), &request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MailboxResolution, "{to}");
        }
    }

    #[tokio::test]
    async fn a_path_that_is_allowed_is_replied_to_and_one_beside_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let replies = replies(&[&format!("dir:{path}/in")]).await;
        let request = MessageId::from_text("1");
        let (good, bad) = (format!("dir:{path}/in/x"), format!("dir:{path}/other/x"));
        replies.send(&good, Bytes::from_static(b"a"), &request).await.unwrap();
        assert!(dir.path().join("in/x").is_dir());
        let error = replies.send(&bad, Bytes::new(), &request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MailboxResolution);
        assert!(!dir.path().join("other").exists());
    }

    #[tokio::test]
    async fn a_stranger_does_not_choose_the_file_of_a_capability() {
        let replies = replies(&["http://127.0.0.1:1"]).await;
        let to = "http://127.0.0.1:1/x?cap_file=Cargo.toml";
        let error = replies.send(to, Bytes::new(), &MessageId::from_text("1")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MailboxResolution, "{error}");
        assert!(error.message().contains("option"), "{error}");
    }

    #[test]
    fn rules_are_read_and_those_that_make_no_sense_refused() {
        for rule in
            ["dir:", "dir:/a/b", "dir:///a/b", "redis://h", "redis://*.h:1/", "memory:", "http://h"]
        {
            assert!(allow(AllowList::new(), rule).is_ok(), "{rule}");
        }
        for rule in ["", "dir", "dir:a/../b", "redis://a/b", "Dir:/a", "redis://u@h"] {
            let error = allow(AllowList::new(), rule).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{rule}");
        }
    }

    #[test]
    fn a_capability_goes_to_no_service_but_those_that_were_named() {
        for scheme in ["http", "https", "grpc", "grpcs", "oap", "oaps"] {
            for rule in [format!("{scheme}:"), format!("{scheme}://")] {
                let error = allow(AllowList::new(), &rule).unwrap_err();
                assert!(error.message().contains("MAILBOX_CAP"), "{rule}: {error}");
            }
            assert!(allow(AllowList::new(), &format!("{scheme}://h")).is_ok(), "{scheme}");
        }
    }
}

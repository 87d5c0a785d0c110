//! Addresses of mailboxes: one grammar for the library, the command line and `reply_to`.
//!
//! `scheme://place/name?option=value`, the last path segment being the mailbox. `scheme:path/name`
//! is allowed where the place is a path.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// Where a mailbox is: `scheme://place/name?option=value`, the last path segment being the name.
/// `scheme:path/name` is allowed where the place is a path.
///
/// | Address | Leads to |
/// |---|---|
/// | `memory://name` | the mailbox of that name that the whole process shares |
/// | `memory://place/name` | a mailbox of one memory backend of this process |
/// | `journal:path/name`, `journal:///path/name` | a mailbox of the journal in that directory |
/// | `dir:path/name`, `dir:///path/name` | the inbox that is the folder `path/name` |
/// | `redis://host:port/name`, `rediss:` | a mailbox on that Redis, or on its cluster |
/// | `redis+cluster://a,b,c/name` | a mailbox on that cluster |
/// | `redis+sentinel://a,b/master/name` | a mailbox on whichever server the sentinels say |
/// | `http://host:port/name`, `https:` | a mailbox of that service |
/// | `grpc://host:port/name`, `grpcs:` | the same, over gRPC; port 7600 if none is named |
/// | `oap://host:port/name`, `oaps:` | the same, over OAP/1; port 7601 if none is named |
///
/// Only the form is checked here; what place and options mean is the backend's.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    scheme: String,
    /// It was written with `//`: the place begins with a host, not with a path.
    with_host: bool,
    place: String,
    name: Name,
    options: BTreeMap<String, String>,
}

/// Longest address.
const ADDRESS_LEN: usize = 4096;
/// Schemes whose place is a path on this machine: no host, no user, no password.
const PATH_SCHEMES: &[&str] = &["journal", "dir"];
/// How addresses of services begin, whether with TLS, and the port if they name none. gRPC is where
/// `mailbox serve` has HTTP; HTTP itself has the ports that everybody expects of it.
const SERVICES: [(&str, bool, u16); 6] = [
    ("http", false, 80),
    ("https", true, 443),
    ("grpc", false, 7600),
    ("grpcs", true, 7600),
    ("oap", false, 7601),
    ("oaps", true, 7601),
];

/// Where a service is, as an address says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServicePlace<'a> {
    pub(crate) scheme: &'static str,
    pub(crate) is_tls: bool,
    /// Without the brackets of IPv6.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
}

impl<'a> ServicePlace<'a> {
    /// Reads `http://host:port` in two parts.
    pub(crate) fn read(scheme: &str, place: &'a str) -> Result<Self> {
        let invalid =
            |message| Error::new(ErrorKind::InvalidParameter, message).with_field("address");
        let refuse = |why: &str| invalid(format!("{scheme}://{place:.200} {why}"));
        let known = SERVICES.into_iter().find(|(known, _, _)| *known == scheme);
        let (scheme, is_tls, usual) =
            known.ok_or_else(|| invalid(format!("{scheme:.40}: is no service")))?;
        if place.contains(['@', '/']) {
            // Without the place: it may have a password in it.
            let form = format!("{scheme}://host:port/name");
            let message =
                format!("an address of a service is {form}: no user, and no path before the name");
            return Err(invalid(message));
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| refuse("has no port that is a number"))?)
            }
            _ => (place, usual),
        };
        if host.is_empty() {
            return Err(refuse("names no host"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self { scheme, is_tls, host, port })
    }

    /// Refuses certificates where nothing is encrypted: whoever names them expects that it is.
    ///
    /// # Errors
    /// `InvalidParameter`.
    pub(crate) fn check_ca(&self, has_ca: bool) -> Result<()> {
        if self.is_tls || !has_ca {
            return Ok(());
        }
        let scheme = self.scheme;
        let message = format!("{scheme}: has no TLS; write {scheme}s:");
        Err(Error::new(ErrorKind::InvalidParameter, message).with_field("ca"))
    }
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// `InvalidParameter`, saying which part is wrong; `TooLarge` above 4 KiB.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > ADDRESS_LEN {
            return Err(Error::too_large("address", text.len(), ADDRESS_LEN));
        }
        let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme))
        else {
            return Err(without_scheme(text));
        };
        let with_host = rest.starts_with("//");
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        // A password with a raw `?` would be cut there, and its first half taken for a name.
        if query.is_some_and(|query| query.contains('@')) {
            return Err(refuse(text, "has an @ behind its ?: write a ? in a password as %3F"));
        }
        if with_host && PATH_SCHEMES.contains(&scheme) && !path.starts_with('/') {
            let why = "has a path on this machine, not a host: write it with one slash or three";
            return Err(refuse(text, why));
        }
        if with_host && is_service(scheme) && !path.is_empty() && !path.contains(['/', '@']) {
            let shown = format!("{scheme}://{path:.200}");
            let message = format!("{shown} names no mailbox; write {shown}/NAME");
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        }
        let (place, name) = match path.rsplit_once('/') {
            // What lies directly in the root directory.
            Some(("", name)) if PATH_SCHEMES.contains(&scheme) => ("/", name),
            Some(split) => split,
            None => ("", path),
        };
        if name.is_empty() {
            return Err(refuse(text, "names no mailbox: its last path segment is empty"));
        }
        // What is wrong with it stays unsaid: where the name was left out, this is a host with a
        // password before it.
        let Ok(name) = Name::parse(name) else {
            let why = "has a last path segment that is not the name of a mailbox, which is 1 to 80 \
                       of A-Z a-z 0-9 . _ : -";
            return Err(refuse(text, why));
        };
        let mut options = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(refuse(text, "has an option without a value"));
            };
            if options.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(refuse(text, "has an option twice"));
            }
        }
        let (scheme, place) = (scheme.to_owned(), place.to_owned());
        Ok(Self { scheme, with_host, place, name, options })
    }

    /// Whether text is meant as an address, not as a bare name. (A name may have colons; an
    /// address has `://`, or a path after its scheme.)
    #[must_use]
    pub fn has_scheme(text: &str) -> bool {
        text.split_once(':')
            .is_some_and(|(scheme, rest)| is_scheme(scheme) && rest.contains(['/', '?']))
    }

    /// Which backend.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Where it is: a host, a path, a region; may be empty.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether the place is a path on this machine.
    #[must_use]
    pub fn is_path(&self) -> bool {
        PATH_SCHEMES.contains(&self.scheme.as_str())
    }

    /// The host part of the place, without user, password and port; empty where it is a path.
    #[must_use]
    pub fn host(&self) -> &str {
        if self.is_path() {
            return "";
        }
        let authority = self.place.split('/').next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        }
    }

    /// Host and port of the service that it leads to, the port being the usual one of the scheme if
    /// none is named; nothing if it leads to no service. Nothing is looked up or connected to.
    ///
    /// # Errors
    /// `InvalidParameter` if no service can be there: a path, a user or a port that is none; or if
    /// a certificate is named and the scheme has no TLS.
    pub fn service(&self) -> Result<Option<(&str, u16)>> {
        if !is_service(&self.scheme) {
            return Ok(None);
        }
        let place = ServicePlace::read(&self.scheme, &self.place)?;
        place.check_ca(self.options.contains_key("ca"))?;
        Ok(Some((place.host, place.port)))
    }

    /// The mailbox there.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// What else was said.
    #[must_use]
    pub const fn options(&self) -> &BTreeMap<String, String> {
        &self.options
    }

    /// Refuses options that nobody understands: a misspelt one must not be ignored.
    ///
    /// # Errors
    /// `InvalidParameter`.
    pub fn allow_options(&self, known: &[&str]) -> Result<()> {
        match self.options.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let message = format!("{}: addresses have no option {key:?}", self.scheme);
                Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"))
            }
        }
    }
}

fn is_service(scheme: &str) -> bool {
    SERVICES.iter().any(|(known, _, _)| *known == scheme)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '+')
}

/// Says that there is no scheme, or what is wrong with what was meant to be one.
fn without_scheme(text: &str) -> Error {
    let meant = text.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    match meant.filter(|scheme| is_scheme(scheme)) {
        Some(scheme) => refuse(
            text,
            format_args!(
                "has a scheme with capitals; schemes are written in small letters: {scheme:.40}:"
            ),
        ),
        None => refuse(text, "has no scheme, such as memory://name"),
    }
}

/// Addresses may carry passwords: the message shows the scheme alone.
fn refuse(text: &str, why: impl fmt::Display) -> Error {
    let shown = match text.split_once(':') {
        Some((scheme, _)) if is_scheme(scheme) => format!("address {scheme}:…"),
        _ => "address".to_owned(),
    };
    Error::new(ErrorKind::InvalidParameter, format!("{shown} {why}")).with_field("address")
}

impl fmt::Display for Address {
    /// Without user, password and options, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place.rsplit_once('@') {
            Some((_, place)) if !self.is_path() => place,
            _ => self.place.as_str(),
        };
        write!(f, "{}:{}{place}", self.scheme, if self.with_host { "//" } else { "" })?;
        if !place.is_empty() && !place.ends_with('/') {
            f.write_str("/")?;
        }
        write!(f, "{}", self.name)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_is_the_mailbox() {
        for (text, scheme, place, name, host) in [
            ("memory://jobs", "memory", "", "jobs", ""),
            ("memory://m1/jobs", "memory", "m1", "jobs", "m1"),
            ("journal:///var/lib/q/jobs", "journal", "/var/lib/q", "jobs", ""),
            ("dir:.tmp/inbox", "dir", ".tmp", "inbox", ""),
            ("dir:inbox?ack=lazy", "dir", "", "inbox", ""),
            ("dir:/inbox", "dir", "/", "inbox", ""),
            ("dir:///inbox", "dir", "/", "inbox", ""),
            ("dir:a@b/inbox", "dir", "a@b", "inbox", ""),
            ("redis://u:p@h:6379/jobs?db=2", "redis", "u:p@h:6379", "jobs", "h"),
            ("redis+sentinel://a,b/master/jobs", "redis+sentinel", "a,b/master", "jobs", "a,b"),
            ("http://[::1]:7600/jobs", "http", "[::1]:7600", "jobs", "::1"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.scheme(), address.place()), (scheme, place), "{text}");
            assert_eq!((address.name().as_str(), address.host()), (name, host), "{text}");
            assert!(Address::has_scheme(text));
            let shown = address.to_string();
            let is_open = address.options().is_empty() && address.is_path();
            assert!(!is_open || shown == text, "{text} is shown as {shown}");
        }
    }

    #[test]
    fn a_path_with_two_slashes_is_refused_because_it_could_be_a_host() {
        for text in ["dir://tmp/inbox", "journal://data/jobs", "dir://inbox"] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{text}");
        }
    }

    #[test]
    fn a_service_is_at_a_host_and_a_port() {
        for (text, host, port) in [
            ("http://127.0.0.1:7600/jobs", "127.0.0.1", 7600),
            ("http://h/jobs", "h", 80),
            ("https://h/jobs", "h", 443),
            ("grpc://h/jobs", "h", 7600),
            ("grpcs://h/jobs?ca=ca.pem", "h", 7600),
            ("oap://[::1]/jobs", "::1", 7601),
            ("oaps://[::1]:1/jobs", "::1", 1),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.service().unwrap(), Some((host, port)), "{text}");
        }
        assert_eq!(Address::parse("redis://h/jobs").unwrap().service().unwrap(), None);
        for (text, why) in [
            (
                "oap://h:1/a/b",
                "an address of a service is oap://host:port/name: no user, and no path",
            ),
            ("http://u:hunter2@h:1/jobs", "no user, and no path"),
            ("oap://h:99999/j", "oap://h:99999 has no port that is a number"),
            ("http://h:abc/j", "has no port that is a number"),
            ("grpc://h:/j", "has no port that is a number"),
            ("http:///j", "names no host"),
            ("grpc://h/j?ca=x", "grpc: has no TLS; write grpcs:"),
            ("http://h/j?ca=x", "http: has no TLS; write https:"),
        ] {
            let error = Address::parse(text).unwrap().service().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{text}");
            let shown = error.to_string();
            assert!(shown.contains(why) && !shown.contains("hunter2"), "{text}: {shown}");
        }
    }

    #[test]
    fn a_service_without_a_mailbox_is_told_apart_from_one_without_a_host() {
        for text in ["http://127.0.0.1:7600", "grpcs://h", "oap://[::1]:7601?ca=x"] {
            let error = Address::parse(text).unwrap_err();
            let shown = text.trim_end_matches("?ca=x");
            let expected = format!("{shown} names no mailbox; write {shown}/NAME");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }

    #[test]
    fn a_scheme_in_capitals_is_not_called_missing() {
        for (text, why) in [
            ("GRPC://127.0.0.1:17600/jobs", "schemes are written in small letters: grpc:"),
            ("Dir:inbox", "schemes are written in small letters: dir:"),
            ("jobs", "has no scheme, such as memory://name"),
            ("A b:jobs", "has no scheme, such as memory://name"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_bad_address_is_refused_without_showing_its_password() {
        for text in [
            "redis://u:hunter2@h",
            "redis://u:hunter2@h:6379",
            "http://u:hunter2@h:6379",
            "redis://u:p/hunter2@h",
            "redis://u:hun?ter2@h/jobs",
            "redis://h/n?hunter2=1&hunter2=2",
            "",
            "jobs",
            "redis://u:hunter2@h/",
            "redis://u:hunter2@h/a b",
            "x://h/n?a",
            "x://h/n?a=1&a=2",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{text}");
            assert!(!error.to_string().contains("hunter2"));
        }
        let shown = Address::parse("redis://u:hunter2@h:1/jobs?password=x").unwrap().to_string();
        assert_eq!(shown, "redis://h:1/jobs");
        assert!(!Address::has_scheme("user:42:inbox"));
    }
}

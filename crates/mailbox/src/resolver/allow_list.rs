//! Which addresses a message may make us open (R4). Invariant: what is not allowed in so many words
//! is refused; an address that two readers could understand differently is refused too.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::Address;
use crate::error::{Error, Result};
use crate::resolver::host::{Host, Pattern, read_authority};

/// Schemes, hosts and options that a `reply_to` address may have. A new list allows nothing.
///
/// An address passes if all of this holds:
///
/// 1. Its scheme is allowed: by [`allow_scheme`](Self::allow_scheme) with any place, by
///    [`allow_host`](Self::allow_host) with these hosts, or, where its place is a path, by
///    [`allow_path`](Self::allow_path) with these paths and what is below them.
/// 2. Unless any place is allowed, each of its hosts is (there are several in
///    `redis+cluster://a,b/name`). What counts as the host is what stands between the last `@` and
///    the port, in the part before the first `/`. It must be a plain DNS name, an IPv4 address or
///    an IPv6 address in brackets: no other characters, no `%` escapes, nothing outside ASCII, no
///    empty labels, so no final dot. Upper and lower case are the same. A port is a number from 1
///    to 65535.
/// 3. Its place does not climb: none of the segments between its slashes (or backslashes) is `.`,
///    `..` or empty, but for the empty one before the first slash of an absolute path; none is so
///    after `%` escapes are undone, and none but the first, where a password may be, has an escaped
///    slash or backslash. So `dir:spool/../etc/x` does not pass for a place in `spool`.
/// 4. Each of its options (`?key=value`) is allowed by [`allow_option`](Self::allow_option): an
///    option can lead elsewhere (`?endpoint=`) or out of a tenant's part (`?prefix=`). None has an
///    `@` in it, which leaves in doubt where the host is.
///
/// Names are compared, not what they lead to: whoever controls the DNS of an allowed host, or can
/// put links below an allowed path, decides where it is. User and password play no part: whoever
/// wrote the message chose them.
///
/// ```
/// use mailbox::Address;
/// use mailbox::resolver::AllowList;
///
/// let allowed = AllowList::new()
///     .allow_scheme("memory")?
///     .allow_host("redis", "queue.internal")?
///     .allow_host("https", "*.example.com:443")?;
///
/// assert!(allowed.check(&Address::parse("redis://queue.internal:6379/replies")?).is_ok());
/// assert!(allowed.check(&Address::parse("redis://queue.internal@evil/replies")?).is_err());
/// assert!(allowed.check(&Address::parse("https://eu.example.com/replies")?).is_err()); // no port
/// # Ok::<(), mailbox::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowList {
    schemes: BTreeMap<String, Rules>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rules {
    any_place: bool,
    hosts: BTreeSet<Pattern>,
    paths: BTreeSet<String>,
    options: BTreeSet<String>,
}

impl AllowList {
    /// Allows nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows addresses of this scheme with any place: every host, every path, every namespace.
    /// Right for `memory` in a program that has one tenant; for others say which hosts.
    ///
    /// # Errors
    /// `InvalidParameter` if it is no scheme, such as `redis` or `redis+cluster`.
    pub fn allow_scheme(mut self, scheme: &str) -> Result<Self> {
        self.rules(scheme)?.any_place = true;
        Ok(self)
    }

    /// Allows addresses of this scheme at this host: a name, an IPv4 address, or an IPv6 address
    /// in brackets. `*.internal` stands for every name below `internal`, at any depth, but not for
    /// `internal` itself and never for IP addresses. With `:port` the address must say that port;
    /// without, it may say any or none.
    ///
    /// # Errors
    /// `InvalidParameter` if it is no scheme or no host, or if places of this scheme are paths: for
    /// those there is [`allow_path`](Self::allow_path).
    pub fn allow_host(mut self, scheme: &str, host: &str) -> Result<Self> {
        if has_paths(scheme) {
            let bound = "a scheme with hosts; for dir and journal use allow_path";
            return Err(Error::invalid("scheme", format_args!("{scheme:?}"), bound));
        }
        let Some(pattern) = Pattern::parse(host) else {
            let bound = "a host, `*.` and a domain, or either with `:port`";
            return Err(Error::invalid("host", format_args!("{host:?}"), bound));
        };
        self.rules(scheme)?.hosts.insert(pattern);
        Ok(self)
    }

    /// Allows addresses of this scheme, `dir` or `journal`, whose place is this path or below it.
    /// Paths are compared as they are written: a relative one stands for no absolute one.
    ///
    /// # Errors
    /// `InvalidParameter` if places of this scheme are no paths, or if the path is empty or climbs.
    pub fn allow_path(mut self, scheme: &str, path: &str) -> Result<Self> {
        if !has_paths(scheme) {
            return Err(Error::invalid("scheme", format_args!("{scheme:?}"), "dir, journal"));
        }
        let plain = path.strip_suffix('/').unwrap_or(path);
        if plain.is_empty() || climbs(plain) {
            let bound = "a path without empty segments, `.` and `..`";
            return Err(Error::invalid("path", format_args!("{path:?}"), bound));
        }
        self.rules(scheme)?.paths.insert(plain.to_owned());
        Ok(self)
    }

    /// Allows addresses of this scheme to have this option, with any value. It does not allow the
    /// scheme.
    ///
    /// # Errors
    /// `InvalidParameter` if it is no scheme.
    pub fn allow_option(mut self, scheme: &str, key: &str) -> Result<Self> {
        self.rules(scheme)?.options.insert(key.to_owned());
        Ok(self)
    }

    /// Whether this address may be followed.
    ///
    /// # Errors
    /// `MailboxResolution` if not, saying what is not allowed.
    pub fn check(&self, address: &Address) -> Result<()> {
        match self.objection(address) {
            None => Ok(()),
            Some(why) => Err(Error::resolution(&address.to_string(), why)),
        }
    }

    /// Why this address may not be followed, if it may not.
    pub(crate) fn objection(&self, address: &Address) -> Option<String> {
        let Some(rules) = self.schemes.get(address.scheme()) else {
            return Some(format!("the allow-list has no {}: addresses", address.scheme()));
        };
        if address.is_path() {
            if !rules.any_place && !rules.allow_path(address.place()) {
                return Some("the allow-list does not have its path".to_owned());
            }
        } else if !rules.any_place {
            let authority = address.place().split('/').next().unwrap_or_default();
            let Some(hosts) = read_authority(authority) else {
                return Some("its host is missing or not in plain form".to_owned());
            };
            if !hosts.iter().all(|(host, port)| rules.allow(host, *port)) {
                return Some("the allow-list does not have its host".to_owned());
            }
        }
        if climbs(address.place()) {
            return Some("its place has a segment that is empty or leads elsewhere".to_owned());
        }
        if address.options().iter().any(|(key, value)| key.contains('@') || value.contains('@')) {
            // Then what stands before the question mark may have been meant as a password.
            return Some("there is an at sign in its options".to_owned());
        }
        let has_other = address.options().keys().any(|key| !rules.options.contains(key));
        has_other.then(|| "the allow-list does not have one of its options".to_owned())
    }

    fn rules(&mut self, scheme: &str) -> Result<&mut Rules> {
        // A scheme is whatever the reader of addresses takes for one.
        if Address::parse(&format!("{scheme}:///x")).is_ok_and(|read| read.scheme() == scheme) {
            return Ok(self.schemes.entry(scheme.to_owned()).or_default());
        }
        let bound = "a lowercase scheme such as redis, without `://`";
        Err(Error::invalid("scheme", format_args!("{scheme:?}"), bound))
    }
}

impl Rules {
    fn allow(&self, host: &Host, port: Option<u16>) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host, port))
    }

    fn allow_path(&self, place: &str) -> bool {
        let is_below = |path: &String| {
            place
                .strip_prefix(path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.paths.iter().any(is_below)
    }
}

/// Whether places of this scheme are paths on this machine.
fn has_paths(scheme: &str) -> bool {
    Address::parse(&format!("{scheme}:x")).is_ok_and(|read| read.is_path())
}

/// Whether some reader of this place could leave the part of it that was looked at. Readers differ
/// in what they take for a slash and when they undo escapes, so all of them are reckoned with.
fn climbs(place: &str) -> bool {
    let place = place.to_ascii_lowercase();
    let escaped_slash = |text: &str| text.contains("%2f") || text.contains("%5c");
    let is_separator = ['/', '\\'];
    let mut behind_the_first = place.split(is_separator).skip(1);
    if behind_the_first.any(|segment| segment.is_empty() || escaped_slash(segment)) {
        return true;
    }
    let read = place.replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    read.split(is_separator).any(|segment| segment == "." || segment == "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn passes(list: &AllowList, text: &str) -> bool {
        Address::parse(text).is_ok_and(|address| list.check(&address).is_ok())
    }

    #[test]
    fn a_new_list_allows_nothing() {
        for text in ["memory://x", "memory://m1/x", "redis://localhost/x", "dir:.tmp/x"] {
            assert!(!passes(&AllowList::new(), text), "{text}");
        }
        let only_an_option = AllowList::new().allow_option("redis", "db").unwrap();
        assert!(!passes(&only_an_option, "redis://localhost/x?db=1"));
    }

    #[test]
    fn one_host_is_allowed_in_every_plain_form() {
        let list = AllowList::new().allow_host("redis", "Queue.internal").unwrap();
        for text in [
            "redis://queue.internal/x",
            "redis://QUEUE.INTERNAL/x",
            "redis://queue.internal:6379/x",
            "redis://user:pa%40ss@queue.internal:6379/x",
            "redis://queue.internal/0/x",
            "redis:queue.internal/x",
            "redis://queue.internal,queue.internal:2/x",
        ] {
            assert!(passes(&list, text), "{text}");
        }
    }

    #[test]
    fn every_disguise_of_another_host_is_refused() {
        let list = AllowList::new().allow_host("redis", "queue.internal").unwrap();
        for text in [
            // Another host, with the good one somewhere beside it.
            "redis://evil/x",
            "redis://queue.internal@evil/x",
            "redis://queue.internal:6379@evil/x",
            "redis://a@queue.internal@evil/x",
            "redis://evil/@queue.internal/x",
            "redis://evil/queue.internal/x",
            "redis://evil:1@2@queue.internal/x",
            "redis://evil#@queue.internal/x",
            "redis://evil\\@queue.internal/x",
            "redis://evil?@queue.internal/x",
            "redis://queue.internal,evil/x",
            "redis://queue.internal:1,evil:2/x",
            "redis://evil\t@queue.internal/x",
            "redis://queue.internal.evil/x",
            "redis://evil.queue.internal/x",
            "redis://xqueue.internal/x",
            // The good one, in forms that not everybody reads alike.
            "redis://queue.internal./x",
            "redis://.queue.internal/x",
            "redis://queue..internal/x",
            "redis://queue.internal /x",
            "redis://%71ueue.internal/x",
            "redis://queue.internal%00/x",
            "redis://queue.internal\u{2024}evil/x",
            "redis://ｑueue.internal/x",
            "redis://queue。internal/x",
            "redis://qu\u{0435}ue.internal/x",
            "redis://[queue.internal]/x",
            // Ports that are none.
            "redis://queue.internal:/x",
            "redis://queue.internal:0/x",
            "redis://queue.internal:65536/x",
            "redis://queue.internal:+80/x",
            "redis://queue.internal:80:80/x",
            "redis://queue.internal:80@/x",
            // No host at all.
            "redis://x",
            "redis:///x",
            "redis:////queue.internal/x",
            "redis://@/x",
            "redis://:6379/x",
            "redis://,/x",
            "redis://queue.internal,/x",
            // Another scheme, or an option.
            "rediss://queue.internal/x",
            "Redis://queue.internal/x",
            "redis+cluster://queue.internal/x",
            "http://queue.internal/x",
            "queue.internal/x",
            "//queue.internal/x",
            "redis://queue.internal/x?db=1",
            "redis://queue.internal/x?host=evil",
        ] {
            assert!(!passes(&list, text), "{text}");
        }
    }

    #[test]
    fn a_wildcard_stands_for_names_below_a_domain_and_for_nothing_else() {
        let list = AllowList::new().allow_host("redis", "*.internal").unwrap();
        for text in ["redis://a.internal/x", "redis://A.b.Internal:1/x"] {
            assert!(passes(&list, text), "{text}");
        }
        for text in [
            "redis://internal/x",
            "redis://.internal/x",
            "redis://evilinternal/x",
            "redis://a.internal.evil/x",
            "redis://a.internal./x",
            "redis://*.internal/x",
            "redis://127.0.0.1/x",
        ] {
            assert!(!passes(&list, text), "{text}");
        }
    }

    #[test]
    fn a_port_in_the_rule_must_be_in_the_address() {
        let list = AllowList::new().allow_host("oap", "[::1]:7601").unwrap();
        let list = list.allow_host("oap", "10.0.0.1").unwrap().allow_host("oap", "h:1").unwrap();
        let good = ["oap://[::1]:7601/x", "oap://[0:0::0:1]:07601/x", "oap://10.0.0.1:5/x"];
        assert!(good.iter().all(|text| passes(&list, text)));
        for text in [
            "oap://[::1]/x",
            "oap://[::1]:22/x",
            "oap://[::1]7601/x",
            "oap://[::1%25lo]:7601/x",
            "oap://[::1/x",
            "oap://::1:7601/x",
            "oap://[::ffff:10.0.0.1]/x",
            "oap://10.1/x",
            "oap://167772161/x",
            "oap://0x0a000001/x",
            "oap://010.0.0.1/x",
            "oap://h/x",
        ] {
            assert!(!passes(&list, text), "{text}");
        }
    }

    #[test]
    fn memory_places_are_hosts_and_the_shared_one_has_none() {
        let one = AllowList::new().allow_host("memory", "m1").unwrap();
        assert!(passes(&one, "memory://m1/x"));
        for text in ["memory://x", "memory://m2/x", "memory://m1@m2/x", "memory:///x"] {
            assert!(!passes(&one, text), "{text}");
        }
        let all = AllowList::new().allow_scheme("memory").unwrap();
        assert!(["memory://x", "memory://m2/x"].iter().all(|text| passes(&all, text)));
        assert!(!passes(&all, "memory://x?a=b"));
    }

    #[test]
    fn a_place_that_climbs_is_refused_wherever_the_climb_stands() {
        let path = AllowList::new().allow_path("dir", "spool").unwrap();
        let scheme = AllowList::new().allow_scheme("dir").unwrap();
        for text in ["dir:spool/x", "dir:spool/a/b/x", "dir:spool/.a/..b/c../.../x"] {
            assert!(passes(&path, text) && passes(&scheme, text), "{text}");
        }
        for text in ["dir:x", "dir:/spool/x", "dir:///var/spool/x"] {
            assert!(passes(&scheme, text) && !passes(&path, text), "{text}");
        }
        // A password with escaped slashes in it is no path.
        let redis = AllowList::new().allow_scheme("redis").unwrap();
        assert!(passes(&redis, "redis://u:a%2F%2Fb@h/x"));
        for text in [
            "dir:spool/../../etc/x",
            "dir://spool/../../etc/x",
            "dir:spool/../x",
            "dir:spool/a/../../x",
            "dir:spool/./x",
            "dir:spool/.%2e/x",
            "dir:spool/%2E%2e/x",
            "dir:spool/%2e/x",
            "dir:spool/..%2fetc/x",
            "dir:spool/%2Fetc/x",
            "dir:spool/a%5C..%5cetc/x",
            "dir:spool/a\\..\\..\\etc/x",
            "dir:..\\etc@spool/x",
            "dir:..%2fetc@spool/x",
            "dir:spool//x",
            "dir:spool//etc/x",
            "dir:spool/\\etc/x",
            "dir:../x",
            "dir:./x",
            "dir:./spool/x",
            "dir:/../x",
            "dir:/spool/../x",
            "dir:////etc/x",
            "dir:///var//x",
        ] {
            assert!(!passes(&path, text) && !passes(&scheme, text), "{text}");
        }
    }

    #[test]
    fn a_path_is_allowed_with_what_is_below_it_and_nothing_beside_it() {
        let list = AllowList::new().allow_path("dir", "/var/spool/").unwrap();
        for text in ["dir:/var/spool/x", "dir:///var/spool/a/x"] {
            assert!(passes(&list, text), "{text}");
        }
        for text in [
            "dir:/var/x",
            "dir:/var/spooled/x",
            "dir:var/spool/x",
            "dir:/etc@/var/spool/x",
            "dir:/x",
            "journal:/var/spool/x",
            "dir:/var/spool/x?shared=true",
        ] {
            assert!(!passes(&list, text), "{text}");
        }
        for (scheme, path) in [("redis", "/a"), ("dir", ""), ("dir", "/"), ("dir", "a/../b")] {
            assert!(AllowList::new().allow_path(scheme, path).is_err(), "{scheme} {path}");
        }
        let error = AllowList::new().allow_host("dir", "spool").unwrap_err();
        assert!(error.to_string().contains("allow_path"), "{error}");
    }

    #[test]
    fn options_are_allowed_one_by_one() {
        let list = AllowList::new().allow_host("sqs", "eu-west-1").unwrap();
        let list = list.allow_option("sqs", "fifo").unwrap();
        assert!(passes(&list, "sqs://eu-west-1/x?fifo=yes"));
        assert!(!passes(&list, "sqs://eu-west-1/x?fifo=yes@evil/x"));
        assert!(!passes(&list, "sqs://eu-west-1/x?endpoint=http://evil"));
        assert!(!passes(&list, "sqs://eu-west-1/x?fifo=yes&endpoint=http://evil"));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for scheme in ["", "Redis", "redis://", "redis:", "*", "re dis", "redis:x/"] {
            let error = AllowList::new().allow_scheme(scheme).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{scheme}");
            assert_eq!(error.field(), Some("scheme"));
        }
        for host in
            ["", "*", "*.", "**.a", "a.*", "*a", "a/b", "u@a", "a,b", "a.", "*.1", "*.[::1]", "a:0"]
        {
            let error = AllowList::new().allow_host("redis", host).unwrap_err();
            assert_eq!(error.field(), Some("host"), "{host}");
        }
    }
}

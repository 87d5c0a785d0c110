//! Hosts as addresses write them. Invariant: whatever is read here is read alike by everybody; all
//! other forms are not read at all.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What a host must look like. Invariant: canonical, so that equal hosts have equal patterns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pattern {
    host: HostPattern,
    /// The address must say this very port.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum HostPattern {
    Exactly(Host),
    /// Any name that ends with this, which begins with a dot.
    EndingWith(String),
}

/// A host as an address has it, in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host {
    Name(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Some(domain) = text.strip_prefix("*.") else {
            let (host, port) = read_host(text)?;
            return Some(Self { host: HostPattern::Exactly(host), port });
        };
        match read_host(domain)? {
            (Host::Name(domain), port) => {
                Some(Self { host: HostPattern::EndingWith(format!(".{domain}")), port })
            }
            _ => None,
        }
    }

    pub(crate) fn matches(&self, host: &Host, port: Option<u16>) -> bool {
        let right_host = match (&self.host, host) {
            (HostPattern::Exactly(wanted), host) => wanted == host,
            (HostPattern::EndingWith(domain), Host::Name(name)) => name.ends_with(domain),
            (HostPattern::EndingWith(_), _) => false,
        };
        right_host && (self.port.is_none() || self.port == port)
    }
}

/// The hosts of `user:password@host:port,host:port`; none if it is not in plain form.
pub(crate) fn read_authority(authority: &str) -> Option<Vec<(Host, Option<u16>)>> {
    let hosts = match authority.rsplit_once('@') {
        Some((user, hosts)) if is_plain_user(user) => hosts,
        Some(_) => return None,
        None => authority,
    };
    hosts.split(',').map(read_host).collect()
}

/// Characters that a user and a password may have (RFC 3986). Others, such as `@`, `#` and `\`,
/// make some readers see the host elsewhere.
fn is_plain_user(user: &str) -> bool {
    user.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:%".contains(c))
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn read_host(text: &str) -> Option<(Host, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (v6, rest) = rest.split_once(']')?;
        let port = if rest.is_empty() { None } else { Some(read_port(rest.strip_prefix(':')?)?) };
        return Some((Host::V6(v6.parse().ok()?), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(read_port(port)?)),
        None => (text, None),
    };
    if let Ok(v4) = host.parse() {
        return Some((Host::V4(v4), port));
    }
    is_dns_name(host).then(|| (Host::Name(host.to_ascii_lowercase()), port))
}

fn read_port(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

/// Labels of letters, digits, `-` and `_`, with dots between them. The last label is not a number:
/// `127.1`, `0x7f000001` and `2130706433` are IP addresses to some readers.
fn is_dns_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253
        && host.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
        && !last.to_ascii_lowercase().starts_with("0x")
}

//! Where the servers are, read from an address without its mailbox: `redis://user:word@host:port`,
//! `redis+cluster://a,b,c`, `redis+sentinel://a,b/master`. Invariant: a target shows no password.

use std::fmt;
use std::path::Path;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use redis::{RedisConnectionInfo, TlsCertificates};

use crate::backends::redis::config::{RedisConfig, SHARED_TTL};
use crate::error::{Error, ErrorKind, Result};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
/// Most servers in an address.
const MOST_NODES: usize = 64;

/// Host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// How servers belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One server; if it turns out to be part of a cluster, that cluster.
    Single,
    Cluster,
    /// Whichever is the master of this name.
    Sentinel(String),
}

/// Where the servers are, and how to get in.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// Servers to begin with; sentinels where the kind says so.
    pub(crate) nodes: Vec<Node>,
    user: Option<String>,
    password: Option<String>,
    tls: bool,
}

impl Target {
    /// Reads scheme and place of an address.
    pub(crate) fn read(scheme: &str, place: &str, tls: bool) -> Result<Self> {
        let (login, rest) = match place.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, place),
        };
        let (hosts, path) = match rest.split_once('/') {
            Some((hosts, path)) => (hosts, Some(path)),
            None => (rest, None),
        };
        let (kind, port) = match (scheme, path) {
            ("redis" | "rediss", None) => (Kind::Single, PORT),
            ("redis+cluster", None) => (Kind::Cluster, PORT),
            ("redis+sentinel", Some(master)) if is_word(master) => {
                (Kind::Sentinel(master.to_owned()), SENTINEL_PORT)
            }
            ("redis+sentinel", _) => {
                return Err(refuse("names no master: write redis+sentinel://host/master/name"));
            }
            _ => return Err(refuse("has a path before its mailbox; databases are ?db=")),
        };
        let nodes: Vec<Node> =
            hosts.split(',').map(|host| Node::read(host, port)).collect::<Result<_>>()?;
        if nodes.len() > MOST_NODES || kind == Kind::Single && nodes.len() > 1 {
            return Err(refuse("names too many servers; a cluster is redis+cluster://a,b"));
        }
        let (user, password) = match login {
            None => (None, None),
            Some(login) => match login.split_once(':') {
                Some(("", password)) => (None, Some(decoded(password)?)),
                Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
                // As others have it: a login without colon is a user, who needs a password.
                None => return Err(refuse("has a user without password: write user:password@")),
            },
        };
        Ok(Self { kind, nodes, user, password, tls: tls || scheme == "rediss" })
    }

    /// Servers, kind and database without secrets, as an address of `mailbox` has them.
    pub(crate) fn address(&self, mailbox: &str, config: &RedisConfig) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(Node::to_string).collect();
        let nodes = nodes.join(",");
        let mut address = match &self.kind {
            Kind::Single if self.tls => format!("rediss://{nodes}/{mailbox}"),
            Kind::Single => format!("redis://{nodes}/{mailbox}"),
            Kind::Cluster => format!("redis+cluster://{nodes}/{mailbox}"),
            Kind::Sentinel(master) => format!("redis+sentinel://{nodes}/{master}/{mailbox}"),
        };
        let mut options = Vec::new();
        if config.db != 0 {
            options.push(format!("db={}", config.db));
        }
        if !config.prefix.is_empty() {
            options.push(format!("prefix={}", config.prefix));
        }
        match config.ttl {
            None => options.push("ttl=0".to_owned()),
            Some(ttl) if ttl != SHARED_TTL => options.push(format!("ttl={}", ttl.as_secs())),
            Some(_) => {}
        }
        if self.tls && self.kind != Kind::Single {
            options.push("tls=yes".to_owned());
        }
        if !options.is_empty() {
            address = format!("{address}?{}", options.join("&"));
        }
        address
    }

    /// How to open a connection to a server that keeps messages.
    pub(crate) fn client(&self, node: &Node, config: &RedisConfig) -> Result<redis::Client> {
        // Redis takes a database for granted; a cluster knows no other and refuses the question.
        let db = i64::from(config.db);
        let login = (self.user.as_deref(), self.password.as_deref());
        self.connect_to(node, login, db, config)
    }

    /// How to open a connection to a sentinel.
    pub(crate) fn sentinel(&self, node: &Node, config: &RedisConfig) -> Result<redis::Client> {
        let login = match &config.sentinel_login {
            Some(login) => (login.user.as_deref(), Some(login.password.as_str())),
            None => (None, None),
        };
        self.connect_to(node, login, 0, config)
    }

    fn connect_to(
        &self,
        node: &Node,
        (user, password): (Option<&str>, Option<&str>),
        db: i64,
        config: &RedisConfig,
    ) -> Result<redis::Client> {
        let (host, port) = (node.host.clone(), node.port);
        let address = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let mut login =
            RedisConnectionInfo::default().set_db(db).set_protocol(ProtocolVersion::RESP3);
        if let Some(user) = user {
            login = login.set_username(user);
        }
        if let Some(password) = password {
            login = login.set_password(password);
        }
        let authority = config.ca.as_deref().filter(|_| self.tls);
        let root_cert = authority.map(read_authority).transpose()?;
        let field = if root_cert.is_some() { "ca" } else { "address" };
        let made = address.into_connection_info().and_then(|info: ConnectionInfo| {
            let info = info.set_redis_settings(login);
            match root_cert {
                Some(_) => redis::Client::build_with_tls(
                    info,
                    TlsCertificates { client_tls: None, root_cert },
                ),
                None => redis::Client::open(info),
            }
        });
        made.map_err(|error| {
            let message = format!("{node}: no connection can be made like this");
            Error::new(ErrorKind::InvalidParameter, message).with_field(field).with_source(error)
        })
    }
}

impl Node {
    /// Reads `host`, `host:port` or `[v6]:port`.
    pub(crate) fn read(text: &str, otherwise: u16) -> Result<Self> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            None => otherwise,
            Some(port) => port.parse().map_err(|_| refuse("has a port that is no number"))?,
        };
        if host.is_empty() {
            let why = "names no server, or no mailbox: write redis://host:port/name";
            return Err(refuse(why));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("kind", &self.kind)
            .field("nodes", &self.nodes)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Reads certificates to trust; an empty file would trust nobody, whom nobody can mean.
fn read_authority(path: &Path) -> Result<Vec<u8>> {
    let refused = |why: &str| {
        let message = format!("{}: {why}", path.display());
        Error::new(ErrorKind::InvalidParameter, message).with_field("ca")
    };
    let read = std::fs::read(path);
    let text = read.map_err(|error| refused("it cannot be read").with_source(error))?;
    let begin = b"-----BEGIN CERTIFICATE-----";
    match text.windows(begin.len()).any(|part| part == begin) {
        true => Ok(text),
        false => Err(refused("it has no certificate in PEM")),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

/// Text with `%3A` and its like turned into what they stand for.
pub(crate) fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                let digits = [char::from(*high), char::from(*low)].map(|digit| digit.to_digit(16));
                let [Some(high), Some(low)] = digits else {
                    return Err(refuse("has a % that stands for nothing: write %25"));
                };
                (u8::try_from(high * 16 + low).expect("two digits of four bits"), behind)
            }
            (b'%', _) => return Err(refuse("has a % that stands for nothing: write %25")),
            (byte, behind) => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| refuse("has a user or password that is not UTF-8"))
}

/// Never what was written: it may be a password.
fn refuse(why: &str) -> Error {
    Error::new(ErrorKind::InvalidParameter, format!("address of a Redis {why}"))
        .with_field("address")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scheme: &str, place: &str) -> Result<Target> {
        Target::read(scheme, place, false)
    }

    #[test]
    fn places_are_read_and_shown_without_secrets() {
        let config = RedisConfig { db: 2, prefix: "a:".into(), ..RedisConfig::default() };
        for (scheme, place, shown) in [
            ("redis", "h", "redis://h:6379/jobs?db=2&prefix=a:"),
            ("redis", "u:p%40ss@h:7000", "redis://h:7000/jobs?db=2&prefix=a:"),
            ("rediss", ":p@[::1]:7000", "rediss://[::1]:7000/jobs?db=2&prefix=a:"),
            ("redis+cluster", "a,b:2", "redis+cluster://a:6379,b:2/jobs?db=2&prefix=a:"),
            ("redis+sentinel", "a/m", "redis+sentinel://a:26379/m/jobs?db=2&prefix=a:"),
        ] {
            let target = read(scheme, place).unwrap();
            assert_eq!(target.address("jobs", &config), shown);
            assert!(!format!("{target:?}").contains("ss"), "{target:?}");
        }
        assert_eq!(read("redis", "u:p%40ss@h").unwrap().password.as_deref(), Some("p@ss"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (scheme, place) in [
            ("redis", ""),
            ("redis", "a,b"),
            ("redis", "h/2"),
            ("redis", "h:port"),
            ("redis", "user@h"),
            ("redis", "u:%zz@h"),
            ("redis", "u:%f@h"),
            ("redis+sentinel", "a"),
            ("redis+sentinel", "a/"),
            ("redis+cluster", "a,,b"),
        ] {
            let error = read(scheme, place).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{scheme} {place}");
        }
    }
}

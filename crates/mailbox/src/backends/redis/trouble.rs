//! What can go wrong with a call, by what is known of its effect: nothing was done, nobody knows,
//! or it was refused. Invariant: only what was certainly not done counts as not done.

use redis::{RedisError, ServerError};

use crate::backends::redis::target::Node;
use crate::error::{Error, ErrorKind, Retry};

/// Why a call has no answer.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// Not done: this server has it; the second says that it does only if asked twice.
    Elsewhere(Node, bool),
    /// Not done: the server does not know the script.
    UnknownScript,
    /// Not done: the server cannot now, or cannot be reached.
    NotNow(Error),
    /// It may have been done.
    InDoubt(Error),
    /// Not done, and never will be like this.
    Refused(Error),
}

impl Trouble {
    /// What the caller is told if nothing else helps.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotNow(error) | Self::InDoubt(error) | Self::Refused(error) => error,
            Self::Elsewhere(node, _) => {
                connection(format!("redis: servers send us to and fro, last to {node}"))
            }
            Self::UnknownScript => {
                let message = "redis: a server forgets scripts as soon as it has them";
                Error::new(ErrorKind::Internal, message)
            }
        }
    }

    /// What a server said.
    pub(crate) fn said(node: &Node, error: &ServerError) -> Self {
        let text = error.details().unwrap_or_default();
        // Which line of which script it was is of no use to those who read this.
        let text = text.split(" script: ").next().unwrap_or_default();
        // What a server says may hold names of keys, not payloads; and may be of any length.
        let said = |kind| {
            let message = format!("redis at {node}: {} {text:.200}", error.code());
            Error::new(kind, message)
        };
        match error.code() {
            code @ ("MOVED" | "ASK") => match read_redirect(node, text) {
                Some(to) => Self::Elsewhere(to, code == "ASK"),
                None => Self::NotNow(said(ErrorKind::Connection)),
            },
            "NOSCRIPT" => Self::UnknownScript,
            "LOADING" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" | "READONLY" | "BUSY"
            | "NOREPLICAS" | "MISCONF" => Self::NotNow(said(ErrorKind::Connection)),
            "UNBLOCKED" => Self::InDoubt(said(ErrorKind::Connection)),
            "OOM" => Self::Refused(said(ErrorKind::Saturated).with_field("storage")),
            "NOAUTH" | "WRONGPASS" => Self::Refused(said(ErrorKind::Unauthorized)),
            "NOPERM" => Self::Refused(said(ErrorKind::Forbidden)),
            // What a user may not do within a script has no code of its own.
            "ERR" if text.starts_with("The user executing the script can't run") => {
                Self::Refused(said(ErrorKind::Forbidden))
            }
            "ERR" if text.contains("cluster support disabled") => {
                let message = format!("redis at {node}: it is no cluster: write redis://");
                let error = Error::new(ErrorKind::InvalidParameter, message);
                Self::Refused(error.with_field("address"))
            }
            _ => Self::Refused(said(ErrorKind::Internal)),
        }
    }

    /// What stopped a connection from being made: nothing was sent.
    pub(crate) fn connecting(node: &Node, error: &RedisError) -> Self {
        use redis::ErrorKind as Kind;

        let text = error.to_string();
        // In one line: what the client says of itself is for its own developers.
        let detail = error.detail().unwrap_or(&text).lines().next().unwrap_or_default();
        let failed =
            |kind, what: &str| Error::new(kind, format!("redis at {node}: {what} ({detail:.200})"));
        let code = error.code().unwrap_or_default();
        match error.kind() {
            Kind::AuthenticationFailed => {
                Self::Refused(failed(ErrorKind::Unauthorized, "it refuses user and password"))
            }
            _ if code == "NOAUTH" => {
                let message =
                    format!("redis at {node}: it wants a password: write redis://:PASSWORD@host/");
                Self::Refused(Error::new(ErrorKind::Unauthorized, message))
            }
            _ if code == "WRONGPASS" || text.contains("WRONGPASS") => {
                Self::Refused(failed(ErrorKind::Unauthorized, "it refuses user and password"))
            }
            _ if code == "NOPERM" => Self::Refused(failed(ErrorKind::Forbidden, "it forbids this")),
            _ if text.contains("DB index") || text.contains("SELECT is not allowed") => {
                let error = failed(ErrorKind::InvalidParameter, "it has no such database");
                Self::Refused(error.with_field("db"))
            }
            Kind::RESP3NotSupported => {
                Self::Refused(failed(ErrorKind::Unsupported, "it is older than Redis 6"))
            }
            Kind::Parse | Kind::UnexpectedReturnType => {
                let what = "what answers there is no Redis";
                Self::Refused(failed(ErrorKind::Connection, what).with_retry(Retry::Never))
            }
            Kind::InvalidClientConfig | Kind::Client => {
                Self::Refused(failed(ErrorKind::InvalidParameter, "it cannot be reached like this"))
            }
            _ if code == "LOADING" => {
                Self::NotNow(failed(ErrorKind::Connection, "it is loading its data"))
            }
            _ => Self::NotNow(failed(ErrorKind::Connection, "it cannot be reached")),
        }
    }

    /// A connection that broke in the middle.
    pub(crate) fn broken(node: &Node, error: RedisError) -> Self {
        let message = format!("redis at {node}: the connection broke before the answer came");
        Self::InDoubt(connection(message).with_source(error))
    }

    /// An answer that does not come.
    pub(crate) fn silent(node: &Node) -> Self {
        Self::InDoubt(connection(format!("redis at {node}: no answer came in time")))
    }
}

pub(crate) fn connection(message: String) -> Error {
    Error::new(ErrorKind::Connection, message)
}

/// Reads `3999 127.0.0.1:6381`. A server that does not know its own name leaves it out.
fn read_redirect(from: &Node, text: &str) -> Option<Node> {
    let place = text.split(' ').nth(1)?;
    let (host, port) = place.rsplit_once(':')?;
    let host = if host.is_empty() || host == "?" { &from.host } else { host };
    Some(Node { host: host.to_owned(), port: port.parse().ok()? })
}

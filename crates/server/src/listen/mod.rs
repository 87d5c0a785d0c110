//! Where connections come from, and how long one may do nothing.

mod accept;
mod cut;
mod pace;
mod peer;
mod timed;
mod untaken;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub(crate) use accept::accept_all;
pub(crate) use cut::{Cut, Ending};
pub(crate) use peer::{AtWork, Doing, Peer};
pub(crate) use timed::Timed;
pub(crate) use untaken::AnswerId;

/// Somewhere connections come from.
pub struct Listener {
    source: Source,
    speaks: Protocol,
}

/// What is spoken on connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP, with gRPC.
    Http,
    /// OAP/1.
    Oap,
}

pub(crate) enum Source {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// A TCP port.
    #[must_use]
    pub const fn tcp(listener: TcpListener) -> Self {
        Self { source: Source::Tcp(listener, None), speaks: Protocol::Http }
    }

    /// A TCP port with TLS.
    #[must_use]
    pub fn tls(listener: TcpListener, config: Arc<ServerConfig>) -> Self {
        let source = Source::Tcp(listener, Some(TlsAcceptor::from(config)));
        Self { source, speaks: Protocol::Http }
    }

    /// A socket in the file system. One that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// Whatever the file system says; `AddrInUse` if somebody listens there.
    pub async fn unix(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let tried = tokio::net::UnixStream::connect(&path).await;
        if tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
            && std::fs::symlink_metadata(&path).is_ok_and(|it| is_socket(&it))
        {
            std::fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        // Whoever can connect still needs a capability; but nobody else needs to connect.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { source: Source::Unix(listener, path), speaks: Protocol::Http })
    }

    /// The same for OAP/1, instead of HTTP.
    #[must_use]
    pub fn for_oap(self) -> Self {
        Self { speaks: Protocol::Oap, ..self }
    }

    /// Whether it is for OAP/1.
    #[must_use]
    pub fn is_oap(&self) -> bool {
        self.speaks == Protocol::Oap
    }

    /// The address, of a TCP port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.source {
            Source::Tcp(listener, _) => listener.local_addr().ok(),
            Source::Unix(..) => None,
        }
    }

    /// The path, of a socket in the file system.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Tcp(..) => None,
            Source::Unix(_, path) => Some(path),
        }
    }
}

fn is_socket(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_socket()
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Listener");
        match &self.source {
            Source::Tcp(listener, tls) => shown.field("tcp", listener).field("tls", &tls.is_some()),
            Source::Unix(_, path) => shown.field("unix", path),
        };
        shown.field("speaks", &self.speaks).finish()
    }
}

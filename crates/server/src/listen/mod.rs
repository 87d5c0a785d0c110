//! Where connections come from, and how long one may do nothing.

mod accept;
mod peer;
mod timed;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub(crate) use accept::accept_all;
pub(crate) use peer::{Doing, Peer};
pub(crate) use timed::Timed;

/// Somewhere connections come from.
pub struct Listener(Source);

pub(crate) enum Source {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// A TCP port.
    #[must_use]
    pub const fn tcp(listener: TcpListener) -> Self {
        Self(Source::Tcp(listener, None))
    }

    /// A TCP port with TLS.
    #[must_use]
    pub fn tls(listener: TcpListener, config: Arc<ServerConfig>) -> Self {
        Self(Source::Tcp(listener, Some(TlsAcceptor::from(config))))
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
        Ok(Self(Source::Unix(listener, path)))
    }

    /// The address, of a TCP port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Source::Tcp(listener, _) => listener.local_addr().ok(),
            Source::Unix(..) => None,
        }
    }

    /// The path, of a socket in the file system.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Source::Tcp(..) => None,
            Source::Unix(_, path) => Some(path),
        }
    }

    pub(crate) fn into_source(self) -> Source {
        self.0
    }
}

fn is_socket(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_socket()
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Source::Tcp(listener, tls) => {
                let is_tls = tls.is_some();
                f.debug_struct("Tcp").field("listener", listener).field("tls", &is_tls).finish()
            }
            Source::Unix(_, path) => f.debug_tuple("Unix").field(path).finish(),
        }
    }
}

//! Connections to a service, for every protocol.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::AlertDescription;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::target::Target;
use crate::error::{Error, ErrorKind, Result};

/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long nothing is heard before the other machine is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A connection, as a stream of bytes.
pub(super) enum Stream {
    Plain(Shared),
    Tls(Box<TlsStream<Shared>>),
}

impl Stream {
    /// Connects to a service, with TLS if it is to be.
    pub(super) async fn open(target: &Target) -> Result<Self> {
        let connect = async {
            let address = (target.host.as_str(), target.port);
            let stream = Arc::new(TcpStream::connect(address).await?);
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            SockRef::from(&*stream).set_tcp_keepalive(&keepalive)?;
            let shared = Shared(stream);
            Ok::<_, io::Error>(match &target.tls {
                None => Self::Plain(shared),
                Some((connector, name)) => {
                    Self::Tls(Box::new(connector.connect(name.clone(), shared).await?))
                }
            })
        };
        let connected = tokio::time::timeout(CONNECT_WITHIN, connect).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        connected.map_err(|error| match of_tls(&error) {
            Some(rustls::Error::InvalidMessage(_)) => foreign("TLS").with_source(error),
            Some(rustls::Error::InvalidCertificate(_)) => untrusted(target, error),
            // Of those that were offered; only HTTP/2 is, for gRPC.
            Some(
                rustls::Error::NoApplicationProtocol
                | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol),
            ) => foreign("gRPC").with_source(error),
            _ => unreachable(target, error),
        })
    }

    /// Both directions, for two who do not wait for each other.
    #[cfg(feature = "oap")]
    pub(super) fn halves(self) -> (Box<dyn Reading>, Box<dyn Writing>) {
        match self {
            Self::Plain(Shared(stream)) => {
                (Box::new(Shared(Arc::clone(&stream))), Box::new(Shared(stream)))
            }
            Self::Tls(stream) => {
                let (reading, writing) = tokio::io::split(stream);
                (Box::new(reading), Box::new(writing))
            }
        }
    }

    /// Something that closes this end.
    pub(super) fn closer(&self) -> Closer {
        let shared = match self {
            Self::Plain(shared) => shared,
            Self::Tls(stream) => stream.get_ref().0,
        };
        Closer(Arc::clone(&shared.0))
    }
}

/// One direction of a connection.
#[cfg(feature = "oap")]
pub(super) trait Reading: AsyncRead + Send + Unpin {}

#[cfg(feature = "oap")]
impl<T: AsyncRead + Send + Unpin> Reading for T {}

/// The other direction.
#[cfg(feature = "oap")]
pub(super) trait Writing: AsyncWrite + Send + Unpin {}

#[cfg(feature = "oap")]
impl<T: AsyncWrite + Send + Unpin> Writing for T {}

/// Whoever is there speaks something else: another port was meant, or another scheme.
pub(super) fn foreign(protocol: &str) -> Error {
    let message = format!(
        "what answers there does not speak {protocol}: a service has http: and grpc: on one port \
         and oap: on another, or https:, grpcs: and oaps: if it has TLS"
    );
    Error::new(ErrorKind::InvalidParameter, message).with_field("address")
}

/// What is wrong with TLS, if that is what is wrong.
fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|source| source.downcast_ref())
}

/// The certificate is not one that is trusted, or is another's. No second attempt changes that.
fn untrusted(target: &Target, error: io::Error) -> Error {
    let message = format!(
        "the certificate of the service at {} is not trusted; if the authority is your own, say \
         so: ?ca=FILE",
        target.base()
    );
    Error::new(ErrorKind::InvalidParameter, message).with_field("ca").with_source(error)
}

/// No connection came about.
pub(super) fn unreachable(target: &Target, error: io::Error) -> Error {
    let message = format!("the service at {} cannot be reached", target.base());
    Error::new(ErrorKind::Connection, message).with_source(error)
}

/// Closes this end of a connection, and leaves the other open: what is on its way still arrives.
#[derive(Debug)]
pub(super) struct Closer(Arc<TcpStream>);

impl Closer {
    pub(super) fn close(&self) {
        // If it is closed already, so much the better.
        let _ = SockRef::from(&*self.0).shutdown(Shutdown::Write);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A stream that can be closed by somebody else.
pub(super) struct Shared(Arc<TcpStream>);

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

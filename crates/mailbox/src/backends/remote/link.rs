//! One connection to a service. Invariant: a connection that a request was given up on is never
//! used for another.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::target::Target;
use crate::error::{Error, ErrorKind, Result};

/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long nothing is heard before the other machine is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A connection.
pub(super) struct Link {
    requests: SendRequest<Full<Bytes>>,
    stream: Arc<TcpStream>,
    /// This end of it is closed.
    is_left: Arc<AtomicBool>,
}

/// What is known of a request that was not answered.
pub(super) enum Unanswered {
    /// It never went out.
    Unsent(Box<Request<Full<Bytes>>>, Error),
    /// It may have been carried out.
    InDoubt(Error),
}

impl Link {
    pub(super) async fn open(target: &Target) -> Result<Self> {
        let connect = async {
            let address = (target.host.as_str(), target.port);
            let stream = Arc::new(TcpStream::connect(address).await?);
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            SockRef::from(&*stream).set_tcp_keepalive(&keepalive)?;
            let shared = Shared(Arc::clone(&stream));
            let requests = match &target.tls {
                None => shake_hands(shared).await?,
                Some((connector, name)) => {
                    shake_hands(connector.connect(name.clone(), shared).await?).await?
                }
            };
            Ok::<_, io::Error>(Self { requests, stream, is_left: Arc::default() })
        };
        let connected = tokio::time::timeout(CONNECT_WITHIN, connect).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
            let message = format!("the service at {} cannot be reached", target.base());
            Error::new(ErrorKind::Connection, message).with_source(error)
        })
    }

    /// Whether it can take a request.
    pub(super) fn is_ready(&self) -> bool {
        self.requests.is_ready() && !self.is_left.load(Ordering::Acquire)
    }

    /// Waits until the answer before is over; false if the connection is.
    pub(super) async fn ready(&mut self) -> bool {
        self.requests.ready().await.is_ok() && !self.is_left.load(Ordering::Acquire)
    }

    /// Sends a request, and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let sent = self.requests.try_send_request(request).await;
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            let error = broken(error.into_error());
            match unsent {
                Some(request) => Unanswered::Unsent(Box::new(request), error),
                None => Unanswered::InDoubt(error),
            }
        })
    }

    /// Something that tells the service that nobody waits any more, while an answer can still come.
    pub(super) fn leaver(&self) -> Leaver {
        Leaver(Arc::clone(&self.stream), Arc::clone(&self.is_left))
    }
}

/// Closes this end of a connection, and leaves the other open: an answer that is on its way still
/// arrives, and one that is not never will.
pub(super) struct Leaver(Arc<TcpStream>, Arc<AtomicBool>);

impl Leaver {
    pub(super) fn leave(&self) {
        self.1.store(true, Ordering::Release);
        // If it is closed already, so much the better.
        let _ = SockRef::from(&*self.0).shutdown(Shutdown::Write);
    }
}

pub(super) fn broken(error: hyper::Error) -> Error {
    let message = "the connection to the service broke: whether the call took effect is in doubt";
    Error::new(ErrorKind::Connection, message).with_source(error)
}

async fn shake_hands<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let made = http1::Builder::new().handshake(TokioIo::new(stream)).await;
    let (requests, connection) = made.map_err(io::Error::other)?;
    // Ends with the connection, which ends when nobody has `requests` any more.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(requests)
}

/// A stream that can be closed by somebody else.
struct Shared(Arc<TcpStream>);

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

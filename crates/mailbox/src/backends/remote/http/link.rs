//! One connection to a service. Invariant: a connection that a request was given up on is never
//! used for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::super::connect::{Closer, Stream, unreachable};
use super::super::target::Target;
use crate::error::{Error, ErrorKind, Result};

/// A connection.
pub(super) struct Link {
    requests: SendRequest<Full<Bytes>>,
    closer: Arc<Closer>,
    /// This end of it is closed.
    is_left: Arc<AtomicBool>,
}

/// What is known of a request that was not answered.
pub(super) enum Unanswered {
    /// It never went out.
    Unsent(Box<Request<Full<Bytes>>>, Error),
    /// It may have been carried out.
    InDoubt(Error),
    /// What came is no HTTP.
    Garbled(hyper::Error),
}

impl Link {
    pub(super) async fn open(target: &Target) -> Result<Self> {
        let stream = Stream::open(target).await?;
        let closer = Arc::new(stream.closer());
        let made = http1::Builder::new().handshake(TokioIo::new(stream)).await;
        let (requests, connection) =
            made.map_err(|error| unreachable(target, std::io::Error::other(error)))?;
        // Ends with the connection, which ends when nobody has `requests` any more.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { requests, closer, is_left: Arc::default() })
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
            let error = error.into_error();
            match unsent {
                Some(request) => Unanswered::Unsent(Box::new(request), broken(error)),
                None if error.is_parse() => Unanswered::Garbled(error),
                None => Unanswered::InDoubt(broken(error)),
            }
        })
    }

    /// Something that tells the service that nobody waits any more, while an answer can still come.
    pub(super) fn leaver(&self) -> Leaver {
        Leaver(Arc::clone(&self.closer), Arc::clone(&self.is_left))
    }
}

/// Closes this end of a connection, and leaves the other open: an answer that is on its way still
/// arrives, and one that is not never will.
pub(super) struct Leaver(Arc<Closer>, Arc<AtomicBool>);

impl Leaver {
    pub(super) fn leave(&self) {
        self.1.store(true, Ordering::Release);
        self.0.close();
    }
}

pub(super) fn broken(error: hyper::Error) -> Error {
    Error::new(ErrorKind::Connection, "the connection to the service broke").with_source(error)
}

//! One HTTP/2 connection, and requests on it.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mailbox_wire::proto::v1::mailbox_client::MailboxClient;
use parking_lot::RwLock;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower_service::Service;

use super::super::calls::ANSWER;
use super::super::connect::{Stream, foreign, unreachable};
use super::super::door::Failed;
use super::super::places::Places;
use super::super::pool::{self, Linked};
use super::super::target::Target;
use super::first_bytes::{FirstBytes, Listened};
use super::heard::{Heard, Said};
use crate::error::{Error, ErrorKind, Result};

/// Most requests in flight on a connection: fewer than a service takes.
const IN_FLIGHT: usize = 64;
/// How often a service is asked whether it is there while something is in flight, and how long it
/// may take to answer.
const PING: Duration = Duration::from_secs(15);
/// How long a service may take to show that it speaks HTTP/2.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
const HELLO_PATH: &str = "/grpc.health.v1.Health/Check";
/// A message of gRPC: its length before it, in it the first field: a name.
const HELLO: &[u8] = b"\0\0\0\0\x07\x0a\x05hello";

/// Calls on a connection.
pub(super) type Client = MailboxClient<Channel>;

/// Where connections lead to, and what allows it.
pub(super) struct Opener {
    pub(super) target: Target,
    pub(super) authorization: RwLock<Option<HeaderValue>>,
    origin: Uri,
}

/// A connection. It is closed when neither this nor anything on it is there any more.
pub(super) struct Link {
    requests: SendRequest<Body>,
    authorization: Option<HeaderValue>,
    origin: Uri,
    places: Places,
}

impl Opener {
    pub(super) fn new(target: Target, authorization: Option<HeaderValue>) -> Result<Self> {
        let scheme = if target.tls.is_some() { "https" } else { "http" };
        let origin = Uri::try_from(format!("{scheme}://{}", target.authority));
        let origin = origin.map_err(|error| {
            let message = format!("{:.200} is no address of a service", target.base());
            Error::new(ErrorKind::InvalidParameter, message)
                .with_source(error)
                .with_field("address")
        })?;
        Ok(Self { target, authorization: RwLock::new(authorization), origin })
    }
}

impl pool::Opener for Opener {
    type Link = Link;

    /// Connects, and waits until something is answered: only then it is known that HTTP/2 is spoken
    /// there. Nothing of value has gone out before, so whatever goes wrong is void.
    async fn open(&self) -> Result<Link, Failed> {
        let stream = Stream::open(&self.target).await.map_err(Failed::void)?;
        let (stream, first) = Listened::new(stream);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
        let made = builder.handshake(TokioIo::new(stream)).await;
        let (mut requests, connection) = made.map_err(|error| {
            Failed::void(unreachable(&self.target, std::io::Error::other(error)))
        })?;
        let closed = CancellationToken::new();
        let ended = closed.clone().drop_guard();
        // Ends with the connection, which ends when nobody has `requests` any more.
        tokio::spawn(async move {
            let _ended = ended;
            let _ = connection.await;
        });
        let hello = timeout(HELLO_WITHIN, requests.send_request(self.hello())).await;
        self.check(hello, &first).map_err(Failed::void)?;
        let authorization = self.authorization.read().clone();
        let places = Places::new(closed);
        places.allow(IN_FLIGHT);
        Ok(Link { requests, authorization, origin: self.origin.clone(), places })
    }
}

impl Opener {
    /// A question that costs a service nothing, and that nothing is needed for: whether a service
    /// is well whose name nobody has.
    fn hello(&self) -> Request<Body> {
        let body = Body::new(Full::new(Bytes::from_static(HELLO)));
        let mut request = Request::new(body);
        let mut origin = self.origin.clone().into_parts();
        origin.path_and_query = Some(PathAndQuery::from_static(HELLO_PATH));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_parts(origin).unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request
    }

    /// Whether what came of that is an answer. Whatever it says: it is HTTP/2.
    fn check(
        &self,
        hello: Result<hyper::Result<Response<Incoming>>, Elapsed>,
        first: &FirstBytes,
    ) -> Result<()> {
        let Ok(answered) = hello else {
            let message = format!("the service at {} does not answer", self.target.base());
            return Err(Error::new(ErrorKind::Connection, message));
        };
        let Err(error) = answered else { return Ok(()) };
        let of_http2 = of_http2(&error);
        if of_http2.is_some_and(|error| error.is_reset() && error.is_remote()) {
            return Ok(());
        }
        if first.are_busy() {
            let message = format!("the service at {} has no place now", self.target.base());
            return Err(Error::new(ErrorKind::Connection, message));
        }
        // On this side it makes no sense.
        if of_http2.is_some_and(|error| error.is_library() && error.is_go_away()) {
            return Err(foreign("gRPC").with_source(error));
        }
        Err(unreachable(&self.target, std::io::Error::other(error)))
    }
}

impl Linked for Link {
    fn places(&self) -> &Places {
        &self.places
    }
}

impl Link {
    /// For one call, and what is said of it.
    pub(super) fn client(&self) -> (Client, Said) {
        self.places.touch();
        let said = Said::default();
        let (requests, authorization) = (self.requests.clone(), self.authorization.clone());
        let channel = Channel { requests, authorization, said: said.clone() };
        let client = MailboxClient::with_origin(channel, self.origin.clone())
            .max_decoding_message_size(ANSWER)
            .max_encoding_message_size(usize::MAX);
        (client, said)
    }

    /// Something was answered.
    pub(super) fn used(&self) {
        self.places.touch();
    }
}

/// Sends a request.
#[derive(Clone)]
pub(super) struct Channel {
    requests: SendRequest<Body>,
    authorization: Option<HeaderValue>,
    said: Said,
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Heard>;
    type Error = Unanswered;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Heard>, Unanswered>> + Send>>;

    /// Always: whether it went out is said of each request.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let (sent, said) = (self.requests.try_send_request(request), self.said.clone());
        Box::pin(async move {
            sent.await.map(|response| said.listen(response)).map_err(|mut error| {
                let is_unsent = error.take_message().is_some();
                let error = error.into_error();
                let is_void = is_unsent || is_refused(&error);
                Unanswered { is_void, why: error.to_string() }
            })
        })
    }
}

/// Whether a request was certainly not carried out, by what is known of HTTP/2: it was refused
/// before it was looked at, or came after those that are still looked at by a service that goes
/// away. That what comes is not understood here says nothing about that.
fn is_refused(error: &hyper::Error) -> bool {
    of_http2(error).is_some_and(|error| {
        let is_reset = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        let is_behind = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        error.is_remote() && (is_reset || is_behind)
    })
}

fn of_http2(error: &hyper::Error) -> Option<&h2::Error> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        source = error.source();
    }
    None
}

/// A request that was not answered.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// It was certainly not carried out.
    pub(super) is_void: bool,
    why: String,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

// Without a source: what is behind it would be taken for a status of the service.
impl StdError for Unanswered {}

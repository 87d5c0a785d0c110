//! The service over HTTP/1.1, with JSON. A connection has one call at a time, and is kept for the
//! next.

mod link;
mod request;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Problem, ReceiveRequest, Received};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::calls::ANSWER;
use super::capability;
use super::config::RemoteConfig;
use super::connect::foreign;
use super::door::{Coming, Door, Failed};
use super::target::Target;
use crate::error::{Error, ErrorKind, Result};

use link::{Leaver, Link, Unanswered, broken};
use request::Call;
use stream::Lines;

/// How long a connection is kept that nobody uses: less than a service keeps it.
const KEEP: Duration = Duration::from_secs(30);

/// How long after an answer a connection may take to be ready for the next request: it has nothing
/// left to do but to notice that.
const READY_WITHIN: Duration = Duration::from_millis(100);

/// A service, and connections to it.
pub(super) struct HttpDoor {
    target: Target,
    authorization: Mutex<Option<HeaderValue>>,
    /// Most connections that are kept.
    max_idle: usize,
    /// Something was answered: whoever is there speaks HTTP.
    has_answered: AtomicBool,
    /// Connections that nobody uses; the last one used last.
    idle: Mutex<Vec<Idle>>,
}

/// A connection that nobody uses.
struct Idle {
    link: Link,
    /// Where it was made: it goes on there, and nowhere else.
    runtime: Id,
    since: Instant,
}

#[async_trait]
impl Door for HttpDoor {
    fn base(&self) -> String {
        self.target.base()
    }

    fn authorize(&self, capability: &str) -> Result<()> {
        *self.authorization.lock() = Some(bearer(capability)?);
        Ok(())
    }

    async fn ask(&self, request: &Request) -> Result<Reply, Failed> {
        self.exchange(request, &mut |_| true).await
    }

    async fn receive(
        &self,
        request: &ReceiveRequest,
        stop: &CancellationToken,
    ) -> Result<Received, Failed> {
        let request = Request::Receive(request.clone());
        let leaver: Mutex<Option<Leaver>> = Mutex::default();
        let mut begun = |link| {
            *leaver.lock() = Some(link);
            !stop.is_cancelled()
        };
        let made = self.exchange(&request, &mut begun);
        tokio::pin!(made);
        let reply = tokio::select! {
            biased;
            reply = &mut made => reply?,
            () = stop.cancelled() => {
                let leaver = leaver.lock().take().ok_or_else(Failed::given_up)?;
                leaver.leave();
                made.await?
            }
        };
        match reply {
            Reply::Received(received) => Ok(received),
            _ => Err(Failed::unusable(not_understood())),
        }
    }

    async fn stream(&self, request: &ReceiveRequest) -> Result<Box<dyn Coming>, Failed> {
        let call = Call::of(&Request::ReceiveStream(request.clone())).map_err(Failed::void)?;
        let (link, response) = self.send(call, &mut |_| true).await?;
        let (head, body) = response.into_parts();
        if head.status == StatusCode::OK {
            return Ok(Box::new(Lines { _link: link, body, unread: BytesMut::new() }));
        }
        Err(refusal(head.status, &whole(body).await?))
    }
}

impl HttpDoor {
    pub(super) fn new(target: Target, config: &RemoteConfig) -> Result<Self> {
        let authorization = authorization(config)?;
        Ok(Self {
            target,
            authorization: Mutex::new(authorization),
            max_idle: config.max_idle,
            has_answered: AtomicBool::new(false),
            idle: Mutex::default(),
        })
    }

    /// One question and its answer. Whoever may want to leave before that is given the way out of
    /// each connection before it is used, and says whether to go on.
    async fn exchange(
        &self,
        request: &Request,
        begun: &mut (dyn FnMut(Leaver) -> bool + Send),
    ) -> Result<Reply, Failed> {
        let call = Call::of(request).map_err(Failed::void)?;
        let (link, response) = self.send(call, begun).await?;
        let (head, body) = response.into_parts();
        let body = whole(body).await?;
        self.keep(link, &head).await;
        if head.status != StatusCode::OK {
            return Err(refusal(head.status, &body));
        }
        request::reply(request, &body)
            .map_err(|error| Failed::unusable(not_understood().with_source(error)))
    }

    /// Sends a request on a connection that was kept, or on a new one.
    async fn send(
        &self,
        call: Call,
        begun: &mut (dyn FnMut(Leaver) -> bool + Send),
    ) -> Result<(Link, Response<Incoming>), Failed> {
        let mut request = self.request(call).map_err(Failed::void)?;
        loop {
            let kept = self.kept();
            let is_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => Link::open(&self.target).await.map_err(Failed::void)?,
            };
            if !begun(link.leaver()) {
                return Err(Failed::given_up());
            }
            match link.send(request).await {
                Ok(response) => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    return Ok((link, response));
                }
                // It was closed while nobody used it: the next one may not be.
                Err(Unanswered::Unsent(unsent, _)) if is_kept => request = *unsent,
                Err(Unanswered::Unsent(_, error)) => return Err(Failed::void(error)),
                Err(Unanswered::InDoubt(error)) => return Err(Failed::in_doubt(error)),
                Err(Unanswered::Garbled(error)) => return Err(self.garbled(error)),
            }
        }
    }

    /// What is known of a request whose answer is no HTTP. Only where nothing else ever was: a
    /// service that has answered before may have carried it out.
    fn garbled(&self, error: hyper::Error) -> Failed {
        if self.has_answered.load(Ordering::Relaxed) {
            return Failed::in_doubt(broken(error));
        }
        Failed::void(foreign("HTTP").with_source(error))
    }

    /// Keeps a connection whose answer has come, if it can be used again. Where it is not ready
    /// soon, whoever is there has answered without reading all of the request, and need never read
    /// the rest: nobody waits for that with the answer in hand.
    async fn keep(&self, mut link: Link, head: &http::response::Parts) {
        let closes = head.headers.get(http::header::CONNECTION);
        if closes.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close")) {
            return;
        }
        match timeout(READY_WITHIN, link.ready()).await {
            Ok(true) => self.put_back(link),
            Ok(false) => {}
            // It would go on with writing what nobody reads.
            Err(_) => link.leaver().leave(),
        }
    }

    /// A connection that was used before, and can be again.
    fn kept(&self) -> Option<Link> {
        let (here, now) = (Handle::current().id(), Instant::now());
        let mut idle = self.idle.lock();
        idle.retain(|it| now.duration_since(it.since) <= KEEP && it.link.is_ready());
        let last = idle.iter().rposition(|it| it.runtime == here)?;
        Some(idle.remove(last).link)
    }

    fn put_back(&self, link: Link) {
        let (runtime, since) = (Handle::current().id(), Instant::now());
        let mut idle = self.idle.lock();
        if idle.len() < self.max_idle {
            idle.push(Idle { link, runtime, since });
        }
    }

    fn request(&self, call: Call) -> Result<http::Request<Full<Bytes>>> {
        let mut request = http::Request::builder()
            .method(call.method)
            .uri(&*call.path)
            .header(HOST, &self.target.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &*self.authorization.lock() {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(call.body)).map_err(|error| {
            Error::new(ErrorKind::Internal, "the call cannot be written").with_source(error)
        })
    }
}

/// The capability, as it is said in a header, and in no log.
pub(super) fn authorization(config: &RemoteConfig) -> Result<Option<HeaderValue>> {
    config.capability.as_deref().map(bearer).transpose()
}

/// The same, where there is one.
pub(super) fn bearer(capability: &str) -> Result<HeaderValue> {
    let value = format!("Bearer {}", capability::checked(capability)?);
    let mut value = HeaderValue::try_from(value).map_err(|error| {
        let message = "the capability cannot be written in a header";
        Error::new(ErrorKind::Internal, message).with_source(error)
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// All of an answer.
async fn whole(body: Incoming) -> Result<Bytes, Failed> {
    let collected = Limited::new(body, ANSWER).collect().await;
    let body = collected.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the answer is larger than {ANSWER} bytes: ask for fewer");
            return Failed::unusable(Error::new(ErrorKind::TooLarge, message));
        }
        let message = "the answer of the service breaks off";
        let error = std::io::Error::other(error.to_string());
        Failed::in_doubt(Error::new(ErrorKind::Connection, message).with_source(error))
    })?;
    Ok(body.to_bytes())
}

/// Why the service does not do what was asked.
fn refusal(status: StatusCode, body: &[u8]) -> Failed {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Failed::refused(problem),
        // Somebody in between, who knows nothing of mailboxes.
        Err(_) => {
            let message = format!("something that is no mailbox service answers {status}");
            // Only of those who say that the request is wrong is it known that it went no further.
            let kind = match status.as_u16() {
                // What can be said of a request whatever it is for.
                status @ (401 | 403 | 408 | 413 | 414 | 429 | 431) => ErrorKind::of_http(status),
                // Nothing about a message or a mailbox, of which whoever says so has none: the
                // address is wrong.
                _ if status.is_client_error() => ErrorKind::InvalidParameter,
                _ => ErrorKind::Connection,
            };
            Failed::in_doubt(Error::new(kind, message))
        }
    }
}

fn not_understood() -> Error {
    let message = "the service says something that this client does not understand";
    Error::new(ErrorKind::Internal, message)
}

impl std::fmt::Debug for HttpDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpDoor").field("target", &self.target).finish_non_exhaustive()
    }
}

//! Calls to a service: connections that are kept, and what is tried again.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use mailbox_wire::json::Problem;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use super::config::RemoteConfig;
use super::convert;
use super::link::{Leaver, Link, Unanswered};
use super::target::Target;
use crate::error::{Error, ErrorKind, Result, Retry};

/// Shortest and longest pause before a service is tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long a connection is kept that nobody uses: less than a service keeps it.
const KEEP: Duration = Duration::from_secs(30);
/// Longer than anybody waits; an `Instant` cannot hold much more.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
/// Most that is read of an answer, beside the payloads in it.
pub(super) const ANSWER: usize = 64 * 1024 * 1024;

/// A service, and connections to it.
pub(super) struct Calls {
    pub(super) target: Target,
    pub(super) config: RemoteConfig,
    authorization: Option<HeaderValue>,
    /// Connections that nobody uses, and since when; the last one used last.
    idle: Mutex<Vec<(Link, Instant)>>,
}

/// Whether a call that may have been carried out can be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// It can: a second time changes nothing.
    Yes,
    /// It cannot.
    No,
}

/// A call.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: Bytes,
    pub(super) again: Again,
    /// How long the service takes in any case.
    pub(super) wait: Duration,
}

impl<'a> Call<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self::new(Method::GET, path, Bytes::new(), Again::Yes)
    }

    pub(super) fn new(method: Method, path: &'a str, body: Bytes, again: Again) -> Self {
        Self { method, path, body, again, wait: Duration::ZERO }
    }

    pub(super) fn post(path: &'a str, question: &impl Serialize, again: Again) -> Result<Self> {
        Ok(Self::new(Method::POST, path, json(question)?, again))
    }
}

/// A question as it goes out.
pub(super) fn json(question: &impl Serialize) -> Result<Bytes> {
    let written = serde_json::to_vec(question);
    written.map(Bytes::from).map_err(|error| {
        Error::new(ErrorKind::Internal, "the call cannot be written").with_source(error)
    })
}

/// How one attempt ended that gave no answer.
struct Failed {
    error: Error,
    /// It was certainly not carried out.
    is_void: bool,
}

impl Calls {
    pub(super) fn new(target: Target, config: RemoteConfig) -> Result<Self> {
        let authorization = config.capability.as_ref().map(|capability| {
            let value = HeaderValue::from_str(&format!("Bearer {}", capability.trim()));
            value.map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let authorization = authorization.transpose().map_err(|_| {
            let message = "the capability has signs in it that none can have";
            Error::new(ErrorKind::InvalidParameter, message).with_field("capability")
        })?;
        Ok(Self { target, config, authorization, idle: Mutex::default() })
    }

    /// Makes a call, again if that does no harm and may help.
    pub(super) async fn make<A: DeserializeOwned>(&self, call: Call<'_>) -> Result<A> {
        self.make_leaving(call, |_| true).await
    }

    /// The same, for one who may want to leave before the answer is there: who is given the way out
    /// of each connection before it is used, and says whether to go on.
    pub(super) async fn make_leaving<A: DeserializeOwned>(
        &self,
        call: Call<'_>,
        mut begun: impl FnMut(Leaver) -> bool + Send,
    ) -> Result<A> {
        let give_up = Instant::now() + self.config.patience;
        let mut pause = PAUSE.0;
        loop {
            let Failed { error, is_void } = match self.attempt(&call, &mut begun).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let may_help =
                error.kind() == ErrorKind::Connection && (is_void || call.again == Again::Yes);
            let advice = match error.retry() {
                Retry::After(time) => time.min(PAUSE.1),
                Retry::Now | Retry::Never => Duration::ZERO,
            };
            let rest = give_up.saturating_duration_since(Instant::now());
            let next = if is_void { pause } else { pause.max(advice) };
            if !may_help || rest < next {
                return Err(error);
            }
            sleep(next).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn attempt<A: DeserializeOwned>(
        &self,
        call: &Call<'_>,
        begun: &mut (impl FnMut(Leaver) -> bool + Send),
    ) -> Result<A, Failed> {
        let deadline = Instant::now() + self.config.timeout.saturating_add(call.wait).min(FAR);
        let made = timeout_at(deadline, self.exchange(call, begun)).await;
        made.unwrap_or_else(|_| Err(in_doubt(self.silent())))
    }

    async fn exchange<A: DeserializeOwned>(
        &self,
        call: &Call<'_>,
        begun: &mut (impl FnMut(Leaver) -> bool + Send),
    ) -> Result<A, Failed> {
        let (mut link, response) = self.send(call, begun).await?;
        let (head, body) = response.into_parts();
        let body = whole(body).await?;
        self.keep(&mut link, &head).await.then(|| self.put_back(link));
        answer(head.status, &body)
    }

    /// Makes a call whose answer goes on: its connection, and what is left of the answer.
    pub(super) async fn open(&self, call: &Call<'_>) -> Result<(Link, Incoming)> {
        let (deadline, mut begun) = (Instant::now() + self.config.timeout, |_| true);
        let sent = timeout_at(deadline, self.send(call, &mut begun)).await;
        let sent = sent.unwrap_or_else(|_| Err(in_doubt(self.silent())));
        let (link, response) = sent.map_err(|failed| failed.error)?;
        let (head, body) = response.into_parts();
        if head.status == StatusCode::OK {
            return Ok((link, body));
        }
        let body = whole(body).await.map_err(|failed| failed.error)?;
        Err(match answer::<Problem>(head.status, &body) {
            Err(failed) => failed.error,
            Ok(_) => self.silent(),
        })
    }

    /// Sends a request on a connection that was kept, or on a new one.
    async fn send(
        &self,
        call: &Call<'_>,
        begun: &mut (impl FnMut(Leaver) -> bool + Send),
    ) -> Result<(Link, Response<Incoming>), Failed> {
        let mut request = self.request(call).map_err(void)?;
        loop {
            let kept = self.kept();
            let is_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => Link::open(&self.target).await.map_err(void)?,
            };
            if !begun(link.leaver()) {
                let message = "the call was given up before it was made";
                return Err(void(Error::new(ErrorKind::Closed, message)));
            }
            match link.send(request).await {
                Ok(response) => return Ok((link, response)),
                // It was closed while nobody used it: the next one may not be.
                Err(Unanswered::Unsent(unsent, _)) if is_kept => request = *unsent,
                Err(Unanswered::Unsent(_, error)) => return Err(void(error)),
                Err(Unanswered::InDoubt(error)) => return Err(in_doubt(error)),
            }
        }
    }

    fn silent(&self) -> Error {
        let message = format!("the service at {} does not answer", self.target.base());
        Error::new(ErrorKind::Connection, message)
    }

    /// Whether a connection can be used again.
    async fn keep(&self, link: &mut Link, head: &http::response::Parts) -> bool {
        let closes = head.headers.get(http::header::CONNECTION);
        !closes.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
            && link.ready().await
    }

    /// A connection that was used before, and can be again.
    fn kept(&self) -> Option<Link> {
        let mut idle = self.idle.lock();
        while let Some((link, since)) = idle.pop() {
            if since.elapsed() > KEEP {
                // Those below have been idle for even longer.
                idle.clear();
                return None;
            }
            if link.is_ready() {
                return Some(link);
            }
        }
        None
    }

    fn put_back(&self, link: Link) {
        let mut idle = self.idle.lock();
        if idle.len() < self.config.max_idle {
            idle.push((link, Instant::now()));
        }
    }

    fn request(&self, call: &Call<'_>) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(HOST, &self.target.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(call.body.clone())).map_err(|error| {
            Error::new(ErrorKind::Internal, "the call cannot be written").with_source(error)
        })
    }
}

fn void(error: Error) -> Failed {
    Failed { error, is_void: true }
}

fn in_doubt(error: Error) -> Failed {
    Failed { error, is_void: false }
}

/// All of an answer.
async fn whole(body: Incoming) -> Result<Bytes, Failed> {
    let collected = Limited::new(body, ANSWER).collect().await;
    let body = collected.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the answer is larger than {ANSWER} bytes: ask for fewer");
            return in_doubt(Error::new(ErrorKind::TooLarge, message));
        }
        let message = "the answer of the service breaks off";
        let error = std::io::Error::other(error.to_string());
        in_doubt(Error::new(ErrorKind::Connection, message).with_source(error))
    })?;
    Ok(body.to_bytes())
}

/// What an answer says.
fn answer<A: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<A, Failed> {
    if status == StatusCode::OK {
        return serde_json::from_slice(body).map_err(|error| {
            let message = "the service says something that this client does not understand";
            in_doubt(Error::new(ErrorKind::Internal, message).with_source(error))
        });
    }
    let problem = serde_json::from_slice::<Problem>(body).map_err(|_| {
        // Somebody in between, who knows nothing of mailboxes.
        let message = format!("something that is no mailbox service answers {status}");
        in_doubt(Error::new(ErrorKind::of_http(status.as_u16()), message))
    })?;
    // Whoever says that it is stopping, or has no place for the connection, has done nothing.
    let is_void = matches!(problem.reason.as_deref(), Some("stopping" | "no_place"));
    Err(Failed { error: convert::error(problem), is_void })
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("target", &self.target).finish_non_exhaustive()
    }
}

//! One request and its answer: who asks, what is in it, and in which order it is refused.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use mailbox::{Error, ErrorKind, Timestamp};
use mailbox_wire::capability::Refused;
use mailbox_wire::object::Object;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::answer::{self, X_CORR_ID};
use super::body;
use crate::auth::Caller;
use crate::calls::Facts;
use crate::failure::{Answer, Failure};
use crate::listen::Peer;
use crate::service::Service;

/// Longest correlation id that is taken from a client.
const CORR_ID_LEN: usize = 128;
/// Longest trace context that is kept.
const TRACEPARENT_LEN: usize = 128;

/// A call that may be made.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) service: Arc<Service>,
    pub(crate) caller: Caller,
    pub(crate) head: Parts,
    pub(crate) peer: Arc<Peer>,
    /// Its place among those that are worked on; one that waits gives it up.
    pub(crate) place: OwnedSemaphorePermit,
}

/// The id under which this call is found in the logs: the client's, or a new one.
#[derive(Debug, Clone)]
pub(crate) struct CorrId(pub(crate) Arc<str>);

impl CorrId {
    pub(crate) fn of(head: &http::HeaderMap) -> Self {
        let given = head.get(X_CORR_ID).and_then(|value| value.to_str().ok());
        let given = given.filter(|text| (1..=CORR_ID_LEN).contains(&text.len()));
        match given {
            Some(text) => Self(text.into()),
            None => Self(new_corr_id().to_string().into()),
        }
    }
}

/// A new version 7 UUID: the time, and a number that no other call of this process has, behind a
/// random one that no other process has. To ask the system for each would cost more than the call.
fn new_corr_id() -> Uuid {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| Uuid::now_v7().as_u128() as u64);
    static CALLS: AtomicU64 = AtomicU64::new(0);

    let millis = u64::try_from(Timestamp::now().as_unix_millis()).unwrap_or_default();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    // Spread over all bits, so that ids of neighbours look nothing alike.
    let call = (call ^ *PROCESS).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (high, low) = (call >> 52, call & ((1 << 52) - 1));
    let process = u128::from(*PROCESS & 0x3FF);
    Uuid::from_u128(
        u128::from(millis) << 80
            | 0x7 << 76
            | u128::from(high) << 64
            | 0x2 << 62
            | process << 52
            | u128::from(low),
    )
}

impl Exchange {
    /// What a request says about the messages in it.
    pub(crate) fn facts(&self) -> Facts {
        let text = |name: &str| self.head.headers.get(name).and_then(|value| value.to_str().ok());
        let traceparent = text("traceparent").filter(|text| text.len() <= TRACEPARENT_LEN);
        Facts {
            corr_id: text(X_CORR_ID.as_str()).and_then(|text| Uuid::try_parse(text).ok()),
            traceparent: traceparent.map(str::to_owned),
        }
    }
}

/// Answers a request without a body.
pub(crate) async fn ask<A, F, Fut>(service: Arc<Service>, request: Request, act: F) -> Response
where
    A: Serialize,
    F: FnOnce(Exchange) -> Fut,
    Fut: Future<Output = Answer<A>>,
{
    respond(service, request, async |exchange, _| Ok(answer::success(&act(exchange).await?))).await
}

/// Answers a request without a body with whatever is made of it.
pub(crate) async fn for_response<F>(service: Arc<Service>, request: Request, act: F) -> Response
where
    F: AsyncFnOnce(Exchange) -> Answer<Response>,
{
    respond(service, request, async |exchange, _| act(exchange).await).await
}

/// Answers a request with a body.
pub(crate) async fn call<Q, A, F, Fut>(service: Arc<Service>, request: Request, act: F) -> Response
where
    Q: DeserializeOwned,
    A: Serialize,
    F: FnOnce(Exchange, Q) -> Fut,
    Fut: Future<Output = Answer<A>>,
{
    call_for_response(service, request, async |exchange, question| {
        Ok(answer::success(&act(exchange, question).await?))
    })
    .await
}

/// The same; no body at all is an empty object.
pub(crate) async fn call_or_nothing<Q, A, F, Fut>(
    service: Arc<Service>,
    request: Request,
    act: F,
) -> Response
where
    Q: DeserializeOwned,
    A: Serialize,
    F: FnOnce(Exchange, Q) -> Fut,
    Fut: Future<Output = Answer<A>>,
{
    respond(service, request, async |exchange: Exchange, body| {
        let bytes = read(&exchange, body).await?;
        let question = question(if bytes.is_empty() { b"{}" } else { &bytes })?;
        Ok(answer::success(&act(exchange, question).await?))
    })
    .await
}

/// The same for one who makes the response by itself.
pub(crate) async fn call_for_response<Q, F>(
    service: Arc<Service>,
    request: Request,
    act: F,
) -> Response
where
    Q: DeserializeOwned,
    F: AsyncFnOnce(Exchange, Q) -> Answer<Response>,
{
    respond(service, request, async |exchange: Exchange, body| {
        let bytes = read(&exchange, body).await?;
        let question = question(&bytes)?;
        act(exchange, question).await
    })
    .await
}

async fn read(exchange: &Exchange, body: Body) -> Answer<Bytes> {
    let config = exchange.service.config();
    let (most, patience) = (config.limits.body, config.timeouts.read);
    Ok(body::read(&exchange.head, body, most, patience).await?)
}

fn question<Q: DeserializeOwned>(text: &[u8]) -> Answer<Q> {
    let Object(question) = serde_json::from_slice(text).map_err(unreadable)?;
    Ok(question)
}

async fn respond<F>(service: Arc<Service>, request: Request, act: F) -> Response
where
    F: AsyncFnOnce(Exchange, Body) -> Answer<Response>,
{
    let (head, body) = request.into_parts();
    let corr_id = head.extensions.get::<CorrId>().cloned();
    let corr_id = corr_id.unwrap_or_else(|| CorrId::of(&head.headers)).0;
    let answered = match exchange(&service, head, &corr_id) {
        Ok(exchange) => act(exchange, body).await,
        Err(Refusal::Now(failure)) => Err(failure),
        Err(Refusal::Busy(failure)) => {
            // Not at once: a client that does not wait by itself would keep the service busy with
            // refusals, and nothing else.
            tokio::time::sleep(service.config().limits.refusal_pause).await;
            Err(failure)
        }
    };
    answered.unwrap_or_else(|failure| answer::failure(&failure, &corr_id))
}

/// Why a call does not begin.
enum Refusal {
    /// Its capability, or the request itself, is not good.
    Now(Failure),
    /// There is too much to do.
    Busy(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Now(failure)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self::Now(refused.into())
    }
}

/// Finds out who asks, before anything else is looked at.
fn exchange(service: &Arc<Service>, head: Parts, corr_id: &Arc<str>) -> Result<Exchange, Refusal> {
    let peer = head.extensions.get::<Arc<Peer>>().map(Arc::clone);
    let peer = peer.ok_or_else(|| Failure::new(ErrorKind::Internal, "a call from nowhere"))?;
    let mut given = head.headers.get_all(AUTHORIZATION).iter();
    let header = given.next().ok_or_else(Failure::no_capability)?;
    if given.next().is_some() {
        return Err(Refused::Malformed.into());
    }
    let token = header.to_str().ok().and_then(|text| text.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let (_, token) = token.ok_or(Refused::Malformed)?;
    let verified = service.auth.verify(token.trim())?;
    let tenant = head.headers.get("x-tenant").and_then(|value| value.to_str().ok());
    let caller = Caller {
        verified,
        ip: peer.ip,
        tenant: tenant.map(str::to_owned),
        corr_id: Arc::clone(corr_id),
    };
    let place = service.admission.request().map_err(|error| Refusal::Busy(error.into()))?;
    Ok(Exchange { service: Arc::clone(service), caller, head, peer, place })
}

/// What is wrong with a document, without what is in it.
fn unreadable(error: serde_json::Error) -> Failure {
    let place = format!("line {} column {}", error.line(), error.column());
    let what = match error.classify() {
        serde_json::error::Category::Data => {
            // Names of fields and types; a quoted value is cut out.
            let text = error.to_string();
            let text = text.split(" at line ").next().unwrap_or_default().to_owned();
            without_quotes(&text)
        }
        serde_json::error::Category::Eof => "the document is not complete".to_owned(),
        _ => "this is no JSON".to_owned(),
    };
    let message = format!("the body cannot be read: {what} ({place})");
    Error::new(ErrorKind::InvalidParameter, message).into()
}

/// Takes out what stands between double quotes: it may be part of a message.
fn without_quotes(text: &str) -> String {
    let parts = text.split('"').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part } else { "..." }).collect()
}

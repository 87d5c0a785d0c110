//! One request and its answer: who asks, what is in it, and in which order it is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::Method;
use http::header::AUTHORIZATION;
use http::request::Parts;
use mailbox::{Error, ErrorKind, Timestamp};
use mailbox_wire::call::{self, Reply};
use mailbox_wire::capability::Refused;
use mailbox_wire::object::Object;
use mailbox_wire::unreadable;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::answer::{self, X_CORR_ID};
use super::{body, outgoing};
use crate::admission::{Place, Purpose, Room};
use crate::auth::Caller;
use crate::calls::{Answered, Asking, Facts};
use crate::failure::{Answer, Failure};
use crate::listen::{Cut, Peer};
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
    /// Its place among those that are worked on; one that waits gives it up.
    pub(crate) place: Place,
    /// What its body takes.
    pub(crate) room: Room,
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
            None => {
                let mut text = Uuid::encode_buffer();
                Self((&*new_corr_id().hyphenated().encode_lower(&mut text)).into())
            }
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

/// What a request says about the messages in it.
fn facts(head: &Parts, request: &call::Request) -> Answer<Facts> {
    let is_conflict = matches!(request, call::Request::Send(_)) && conflict_wanted(head)?;
    Ok(Facts { is_conflict, ..facts_of(head) })
}

pub(crate) fn facts_of(head: &Parts) -> Facts {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let traceparent = text("traceparent").filter(|text| text.len() <= TRACEPARENT_LEN);
    Facts {
        corr_id: text(X_CORR_ID.as_str()).and_then(|text| Uuid::try_parse(text).ok()),
        traceparent: traceparent.map(str::to_owned),
        is_conflict: false,
    }
}

/// Whether a message that was sent before is a conflict.
pub(crate) fn conflict_wanted(head: &Parts) -> Answer<bool> {
    match head.headers.get("x-idempotency-mode").map(|value| value.as_bytes()) {
        None | Some(b"200-flag") => Ok(false),
        Some(b"409-conflict") => Ok(true),
        Some(_) => {
            let bound = "200-flag, 409-conflict";
            Err(Error::invalid("x-idempotency-mode", "something else", bound).into())
        }
    }
}

/// Answers a request without a body.
pub(crate) async fn ask<F>(service: Arc<Service>, request: Request, asks: F) -> Response
where
    F: FnOnce() -> Answer<call::Request>,
{
    respond(service, request, Reads::Nothing, |_| asks()).await
}

/// Answers a request with a body.
pub(crate) async fn call<Q, F>(service: Arc<Service>, request: Request, asks: F) -> Response
where
    Q: DeserializeOwned,
    F: FnOnce(Q) -> Answer<call::Request>,
{
    respond(service, request, Reads::Body, |bytes| asks(question(&bytes)?)).await
}

/// The same; no body at all is an empty object.
pub(crate) async fn call_or_nothing<Q, F>(
    service: Arc<Service>,
    request: Request,
    asks: F,
) -> Response
where
    Q: DeserializeOwned,
    F: FnOnce(Q) -> Answer<call::Request>,
{
    respond(service, request, Reads::Body, |bytes| {
        asks(question(if bytes.is_empty() { b"{}" } else { &bytes })?)
    })
    .await
}

/// Answers a request without a body with whatever is made of it.
pub(crate) async fn for_response<F>(service: Arc<Service>, request: Request, act: F) -> Response
where
    F: AsyncFnOnce(Exchange) -> Answer<Response>,
{
    let (head, body) = request.into_parts();
    let corr_id = corr_id_of(&head);
    let answered = match admit(service, head, body, &corr_id, Reads::Nothing).await {
        Ok((exchange, _)) => act(exchange).await,
        Err(failure) => Err(failure),
    };
    answered.unwrap_or_else(|failure| answer::failure(&failure, &corr_id))
}

fn question<Q: DeserializeOwned>(text: &[u8]) -> Answer<Q> {
    let Object(question) = serde_json::from_slice(text).map_err(unreadable)?;
    Ok(question)
}

/// What of a request is looked at beside its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Body,
}

async fn respond<F>(service: Arc<Service>, request: Request, reads: Reads, asks: F) -> Response
where
    F: FnOnce(Bytes) -> Answer<call::Request>,
{
    let (head, body) = request.into_parts();
    let corr_id = corr_id_of(&head);
    let answered = async {
        let (exchange, bytes) = admit(service, head, body, &corr_id, reads).await?;
        let request = asks(bytes)?;
        let facts = facts(&exchange.head, &request)?;
        let Exchange { service, caller, head, place, room } = exchange;
        let answered = service.answer(Asking { caller, facts, place, room }, request).await?;
        let cut = head.extensions.get::<Cut>().cloned().unwrap_or_default();
        Ok(written(&service, answered, &corr_id, cut))
    };
    answered.await.unwrap_or_else(|failure| answer::failure(&failure, &corr_id))
}

fn written(service: &Arc<Service>, answered: Answered, corr_id: &Arc<str>, cut: Cut) -> Response {
    match answered {
        Answered::Reply(reply) => answer::success(&reply),
        Answered::Messages(Reply::Received(received), hand_over) => {
            outgoing::response(received.into_json(), hand_over)
        }
        Answered::Messages(reply, hand_over) => {
            let json = serde_json::to_vec(&reply).expect("text, numbers and maps can be written");
            outgoing::response(json, hand_over)
        }
        Answered::Stream(stream) => super::stream::response(service, stream.until(cut), corr_id),
    }
}

/// Finds this call in the logs.
pub(crate) fn corr_id_of(head: &Parts) -> Arc<str> {
    let corr_id = head.extensions.get::<CorrId>().cloned();
    corr_id.unwrap_or_else(|| CorrId::of(&head.headers)).0
}

/// Refuses what can be refused, the cheapest first: who asks and from where, how often, then the
/// body, and last whether there is a place. One whose body comes slowly takes nobody's place.
async fn admit(
    service: Arc<Service>,
    head: Parts,
    body: Body,
    corr_id: &Arc<str>,
    reads: Reads,
) -> Answer<(Exchange, Bytes)> {
    let peer = head.extensions.get::<Arc<Peer>>().map(Arc::clone);
    let peer = peer.ok_or_else(|| Failure::new(ErrorKind::Internal, "a call from nowhere"))?;
    // Before it is verified: whatever is taken back from here on makes it another one.
    let epoch = service.auth.epoch();
    let caller = caller(&service, &head, &peer, corr_id)?;
    let purpose = purpose_of(&head.method, head.uri.path());
    caller.may_come(purpose)?;
    let (bytes, room) = match reads {
        Reads::Nothing => (Bytes::new(), Room::default()),
        Reads::Body => {
            let most = service.settings().limits.body;
            read_body(&service, &head, body, most, &caller.verified.token_id).await?
        }
    };
    let place = service.place_for(&caller, purpose, epoch).await?;
    Ok((Exchange { service, caller, head, place, room }, bytes))
}

/// Reads a body of no more than so many bytes, for the one with this capability.
pub(crate) async fn read_body(
    service: &Service,
    head: &Parts,
    body: Body,
    most: usize,
    token_id: &Arc<str>,
) -> Result<(Bytes, Room), Error> {
    let (patience, budget) = (service.settings().timeouts.read, &service.admission.incoming);
    body::read(head, body, body::Bounds { most, patience, budget, token_id }).await
}

/// What a call is about.
fn purpose_of(method: &Method, path: &str) -> Purpose {
    let call = path.strip_prefix("/v1/").unwrap_or_default();
    let mut parts = call.split('/');
    match parts.next().unwrap_or_default() {
        "send" => Purpose::Sending,
        // What the store can do is asked by every client first, also by one that comes to settle.
        "ack" | "nack" | "extend" | "settle" | "abilities" => Purpose::Settling,
        "messages" => Purpose::Looking,
        // To be asked for the head of an answer is to be asked for all of it.
        "dlq" if [Method::GET, Method::HEAD].contains(method) => Purpose::Looking,
        "topics" if matches!(parts.nth(1), Some("peek" | "lookup")) => Purpose::Looking,
        _ => Purpose::Other,
    }
}

/// Finds out who asks, before anything else is looked at.
pub(crate) fn caller(
    service: &Service,
    head: &Parts,
    peer: &Peer,
    corr_id: &Arc<str>,
) -> Answer<Caller> {
    let mut given = head.headers.get_all(AUTHORIZATION).iter();
    let header = given.next().ok_or_else(Failure::no_capability)?;
    if given.next().is_some() {
        return Err(Refused::Malformed.into());
    }
    let verified = service.auth.verify_on(header.as_bytes(), &peer.memo, bearer)?;
    let tenant = head.headers.get("x-tenant").and_then(|value| value.to_str().ok());
    let (tenant, corr_id) = (tenant.map(str::to_owned), Arc::clone(corr_id));
    let trace = head.extensions.get().cloned().unwrap_or_default();
    Ok(Caller { verified, ip: peer.ip, tenant, corr_id, trace })
}

/// The capability in a header.
fn bearer(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// What is wrong with a document, without what is in it.
fn unreadable(error: serde_json::Error) -> Failure {
    let message = format!("the body cannot be read: {}", unreadable::unreadable(&error));
    Error::new(ErrorKind::InvalidParameter, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_is_about_is_seen_from_its_path() {
        let cases = [
            (Method::POST, "/v1/send/batch", Purpose::Sending),
            (Method::POST, "/v1/settle/batch", Purpose::Settling),
            (Method::POST, "/v1/recv", Purpose::Other),
            (Method::GET, "/v1/dlq/jobs", Purpose::Looking),
            (Method::HEAD, "/v1/dlq/jobs", Purpose::Looking),
            (Method::POST, "/v1/dlq/delete", Purpose::Other),
            (Method::GET, "/v1/topics/jobs/peek", Purpose::Looking),
            (Method::HEAD, "/v1/topics/jobs/peek", Purpose::Looking),
            (Method::POST, "/v1/topics/jobs/lookup", Purpose::Looking),
            (Method::GET, "/v1/messages/1", Purpose::Looking),
            // A mailbox can have any name.
            (Method::PUT, "/v1/topics/peek", Purpose::Other),
            (Method::POST, "/v1/topics/peek/purge", Purpose::Other),
        ];
        for (method, path, purpose) in cases {
            assert_eq!(purpose_of(&method, path), purpose, "{method} {path}");
        }
    }
}

//! Whether the service is alive and ready, and what becomes of calls that do not exist.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderValue, StatusCode};
use mailbox::{Error, ErrorKind};
use mailbox_wire::capability::Op;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer;
use super::exchange::{CorrId, Exchange, for_response};
use super::problems::Problems;
use crate::admission::Asks;
use crate::failure::Failure;
use crate::listen::Peer;
use crate::service::{Readiness, Service};

/// Whether the service can do its work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// It can do all of it.
    ok: bool,
    /// Messages can be received, settled and looked at.
    reads: bool,
    /// Messages can be sent: this ends before reads do.
    writes: bool,
    /// Why not all of it.
    reasons: Vec<String>,
}

/// Whether the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "service", security(()),
    responses((status = 200, body = Health)))]
pub(crate) async fn healthz(State(service): State<Arc<Service>>, request: Request) -> Response {
    as_guest(&service, request, Asks::Little, async {
        answer::success(&Health { ok: true, reads: true, writes: true, reasons: Vec::new() })
    })
    .await
}

/// Whether it takes messages; if not, why.
#[utoipa::path(get, path = "/readyz", tag = "service", security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(crate) async fn readyz(State(service): State<Arc<Service>>, request: Request) -> Response {
    as_guest(&service, request, Asks::Little, async {
        let Readiness { reads, writes, reasons } = service.readiness().await;
        let health = Health { ok: reads && writes, reads, writes, reasons };
        let mut response = answer::success(&health);
        if !health.ok {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    })
    .await
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "service", security(()),
    responses((status = 200, body = String, content_type = "application/json")))]
pub(crate) async fn openapi(State(service): State<Arc<Service>>, request: Request) -> Response {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| super::openapi().into());
    // All have the same.
    as_guest(&service, request, Asks::Little, async {
        answer::with_body(StatusCode::OK, DOCUMENT.clone())
    })
    .await
}

/// What is counted and measured, for Prometheus. From elsewhere than this machine it needs a
/// capability for `admin` on all mailboxes.
#[utoipa::path(get, path = "/metrics", tag = "service", security((), ("capability" = [])),
    responses(
        (status = 200, body = String, content_type = "application/openmetrics-text"), Problems))]
pub(crate) async fn metrics(State(service): State<Arc<Service>>, request: Request) -> Response {
    if is_here(&request) {
        let text = async { plain(service.metrics_text().await) };
        return as_guest(&service, request, Asks::Much, text).await;
    }
    for_response(service, request, async |exchange: Exchange| {
        exchange.caller.may(Op::Admin, None, 0)?;
        Ok(plain(exchange.service.metrics_text().await))
    })
    .await
}

/// Whether it is asked on this machine, by something that knows it: a page in a browser here could
/// be from anywhere, but says so, or calls this machine by another name.
fn is_here(request: &Request) -> bool {
    let peer = request.extensions().get::<Arc<Peer>>();
    let is_near = peer.is_some_and(|peer| peer.ip.is_none_or(|ip| ip.is_loopback()));
    let host = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let host = host.and_then(|text| text.parse::<Authority>().ok());
    let is_named = host.is_some_and(|host| {
        let host = host.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    is_near && is_named && !request.headers().contains_key(ORIGIN)
}

fn plain(text: String) -> Response {
    let mut response = Response::new(text.into());
    let plain =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Answers one who needs no capability, if there is a place; it is free when the answer is out.
async fn as_guest(
    service: &Service,
    request: Request,
    asks: Asks,
    answer: impl Future<Output = Response>,
) -> Response {
    let peer = request.extensions().get::<Arc<Peer>>();
    let guest = match peer.map(|peer| service.admission.guests.come(peer, asks)) {
        Some(Ok(guest)) => guest,
        Some(Err(error)) => return refused(&request, error),
        None => return refused(&request, Error::new(ErrorKind::Internal, "a call from nowhere")),
    };
    drop(request);
    let mut response = answer.await;
    response.extensions_mut().insert(guest);
    response
}

fn refused(request: &Request, error: Error) -> Response {
    let corr_id = request.extensions().get::<CorrId>().cloned();
    let corr_id = corr_id.unwrap_or_else(|| CorrId::of(request.headers()));
    answer::failure(&Failure::from(error), &corr_id.0)
}

pub(crate) async fn no_such_call(request: Request) -> Response {
    refused(&request, Error::new(ErrorKind::NotFound, "there is no such call; see /openapi.json"))
}

pub(crate) async fn no_such_method(request: Request) -> Response {
    let error = Error::new(ErrorKind::InvalidParameter, "this call has another method");
    let mut response = refused(&request, error);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

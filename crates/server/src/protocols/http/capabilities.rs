//! Making capabilities, taking them back, replacing the key.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use mailbox_wire::call;
use mailbox_wire::json::{MintRequest, Minted, RevokeRequest, Revoked, RotateRequest, Rotated};

use super::exchange::{call, call_or_nothing};
use super::problems::Problems;
use crate::service::Service;

type Shared = State<Arc<Service>>;

/// Makes a capability. Needs one for `admin` on all mailboxes.
#[utoipa::path(post, path = "/v1/caps/mint", tag = "capabilities", request_body = MintRequest,
    responses((status = 200, body = Minted), Problems))]
pub(crate) async fn mint(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::Mint(question))).await
}

/// Takes back a capability, and all that were narrowed from it.
#[utoipa::path(post, path = "/v1/caps/revoke", tag = "capabilities", request_body = RevokeRequest,
    responses((status = 200, body = Revoked), Problems))]
pub(crate) async fn revoke(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::Revoke(question))).await
}

/// Makes a new root key; what the old one has made is good for a while.
#[utoipa::path(post, path = "/v1/caps/rotate", tag = "capabilities",
    request_body = Option<RotateRequest>, responses((status = 200, body = Rotated), Problems))]
pub(crate) async fn rotate(State(service): Shared, request: Request) -> Response {
    call_or_nothing(service, request, |question| Ok(call::Request::Rotate(question))).await
}

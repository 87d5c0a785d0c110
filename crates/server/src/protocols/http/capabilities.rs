//! Making capabilities, taking them back, replacing the key.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use mailbox_wire::json::{MintRequest, Minted, RevokeRequest, Revoked, RotateRequest, Rotated};

use super::exchange::{call, call_or_nothing};
use super::problems::Problems;
use crate::service::Service;

type Shared = State<Arc<Service>>;

/// Makes a capability. Needs one for `admin` on all mailboxes.
#[utoipa::path(post, path = "/v1/caps/mint", tag = "capabilities", request_body = MintRequest,
    responses((status = 200, body = Minted), Problems))]
pub(crate) async fn mint(State(service): Shared, request: Request) -> Response {
    call(service, request, |exchange, question: MintRequest| async move {
        let MintRequest { ops, topics, ttl_s, caveats } = question;
        let ttl = ttl_s.map(Duration::from_secs);
        exchange.service.mint(&exchange.caller, &ops, &topics, ttl, &caveats)
    })
    .await
}

/// Takes back a capability, and all that were narrowed from it.
#[utoipa::path(post, path = "/v1/caps/revoke", tag = "capabilities", request_body = RevokeRequest,
    responses((status = 200, body = Revoked), Problems))]
pub(crate) async fn revoke(State(service): Shared, request: Request) -> Response {
    call(service, request, |exchange, question: RevokeRequest| async move {
        let RevokeRequest { token_id, capability } = question;
        let (token_id, capability) = (token_id.as_deref(), capability.as_deref());
        let token_id = exchange.service.revoke(&exchange.caller, token_id, capability).await?;
        Ok(Revoked { token_id })
    })
    .await
}

/// Makes a new root key; what the old one has made is good for a while.
#[utoipa::path(post, path = "/v1/caps/rotate", tag = "capabilities",
    request_body = Option<RotateRequest>, responses((status = 200, body = Rotated), Problems))]
pub(crate) async fn rotate(State(service): Shared, request: Request) -> Response {
    call_or_nothing(service, request, |exchange, question: RotateRequest| async move {
        let grace = question.grace_s.map(Duration::from_secs);
        let (kid, until) = exchange.service.rotate(&exchange.caller, grace).await?;
        let operator_capability = exchange.service.new_operator(&exchange.caller)?;
        let previous_until = until.map(|until| until.to_string());
        Ok(Rotated { kid, previous_until, operator_capability })
    })
    .await
}

//! Sending, receiving, settling.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use mailbox_wire::call;
use mailbox_wire::json::{
    AckRequest, ExtendRequest, NackRequest, Ok as Done, ReceiveRequest, Received, SendBatchRequest,
    SendRequest, Sent, SentBatch, SettleBatchRequest, SettleItem, SettleOp, SettledBatch,
};

use super::exchange::{call, call_or_nothing};
use super::path::Segment;
use super::problems::Problems;
use crate::failure::Answer;
use crate::service::Service;

type Shared = State<Arc<Service>>;

/// Sends one message.
#[utoipa::path(post, path = "/v1/send", request_body = SendRequest, tag = "messages",
    params(
        ("x-idempotency-mode" = Option<String>, Header,
            description = "what a duplicate gives: `200-flag` (default) or `409-conflict`"),
        ("traceparent" = Option<String>, Header, description = "kept with the message")),
    responses((status = 200, body = Sent), Problems))]
pub(crate) async fn send(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::Send(question))).await
}

/// Sends several messages, to one mailbox or to many.
#[utoipa::path(post, path = "/v1/send/batch", request_body = SendBatchRequest, tag = "messages",
    responses((status = 200, body = SentBatch), Problems))]
pub(crate) async fn send_batch(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::SendBatch(question))).await
}

/// Receives.
#[utoipa::path(post, path = "/v1/recv", request_body = ReceiveRequest, tag = "messages",
    responses((status = 200, body = Received), Problems))]
pub(crate) async fn receive(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::Receive(question))).await
}

/// Receives until the client leaves: one envelope a line, and empty lines as signs of life. No more
/// than `max_messages` are in flight; what is not settled when the client leaves is given back. If
/// the service ends it, the last line is a problem, and what is in flight can still be settled.
#[utoipa::path(post, path = "/v1/recv/stream", request_body = ReceiveRequest, tag = "messages",
    responses((status = 200, content_type = "application/x-ndjson", body = String), Problems))]
pub(crate) async fn receive_stream(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::ReceiveStream(question))).await
}

/// Acknowledges a delivery: the message is done, and gone.
#[utoipa::path(post, path = "/v1/ack/{msg_id}", request_body = Option<AckRequest>, tag = "messages",
    params(("msg_id" = String, Path)), responses((status = 200, body = Done), Problems))]
pub(crate) async fn ack(
    State(service): Shared,
    Segment(msg_id): Segment,
    request: Request,
) -> Response {
    call_or_nothing(service, request, |question: AckRequest| {
        let AckRequest { receipt_handle } = question;
        settle(SettleItem { receipt_handle, ..SettleItem::new(SettleOp::Ack) }, msg_id)
    })
    .await
}

/// Gives a delivery back: the message is received again, or becomes a dead letter.
#[utoipa::path(post, path = "/v1/nack/{msg_id}", tag = "messages",
    request_body = Option<NackRequest>, params(("msg_id" = String, Path)),
    responses((status = 200, body = Done), Problems))]
pub(crate) async fn nack(
    State(service): Shared,
    Segment(msg_id): Segment,
    request: Request,
) -> Response {
    call_or_nothing(service, request, |question: NackRequest| {
        let NackRequest { receipt_handle, reason, delay_ms, dead } = question;
        let item = SettleItem::new(SettleOp::Nack);
        settle(SettleItem { receipt_handle, reason, delay_ms, dead, ..item }, msg_id)
    })
    .await
}

/// Hides a delivery from others for longer.
#[utoipa::path(post, path = "/v1/extend/{msg_id}", request_body = ExtendRequest, tag = "messages",
    params(("msg_id" = String, Path)), responses((status = 200, body = Done), Problems))]
pub(crate) async fn extend(
    State(service): Shared,
    Segment(msg_id): Segment,
    request: Request,
) -> Response {
    call(service, request, |question: ExtendRequest| {
        let (receipt_handle, visibility_ms) =
            (question.receipt_handle, Some(question.visibility_ms));
        let item = SettleItem::new(SettleOp::Extend);
        settle(SettleItem { receipt_handle, visibility_ms, ..item }, msg_id)
    })
    .await
}

fn settle(item: SettleItem, msg_id: Answer<String>) -> Answer<call::Request> {
    Ok(call::Request::Settle(SettleItem { msg_id: Some(msg_id?), ..item }))
}

/// Settles several deliveries.
#[utoipa::path(post, path = "/v1/settle/batch", request_body = SettleBatchRequest,
    tag = "messages", responses((status = 200, body = SettledBatch), Problems))]
pub(crate) async fn settle_batch(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::SettleBatch(question))).await
}

//! Sending, receiving, settling.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use mailbox::{DeadReason, Error, ErrorKind, Name};
use mailbox_wire::json::{
    AckRequest, BatchMessage, BatchResult, ExtendRequest, NackRequest, Ok as Done, Problem,
    ReceiveRequest, Received, SendBatchRequest, SendRequest, Sent, SentBatch, SettleBatchRequest,
    SettleItem, SettleOp, SettleResult, SettledBatch,
};

use super::answer;
use super::convert::dead_reason;
use super::exchange::{Exchange, call, call_for_response, call_or_nothing};
use super::hand_over;
use super::path::Segment;
use super::problems::Problems;
use crate::calls::{Delivery, Item, Wish, outgoing};
use crate::failure::{Answer, Failure};
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
    call(service, request, |exchange, question: SendRequest| async move {
        let conflict = conflict_wanted(&exchange)?;
        let mut sent = send_all(&exchange, None, vec![question.into()]).await?;
        let sent = sent.pop().ok_or_else(no_answer)??;
        if sent.duplicate && conflict {
            let failure = Failure::new(ErrorKind::Duplicate, "this message was sent before");
            return Err(Failure { msg_id: Some(sent.msg_id), ..failure });
        }
        Ok(sent)
    })
    .await
}

/// Sends several messages, to one mailbox or to many.
#[utoipa::path(post, path = "/v1/send/batch", request_body = SendBatchRequest, tag = "messages",
    responses((status = 200, body = SentBatch), Problems))]
pub(crate) async fn send_batch(State(service): Shared, request: Request) -> Response {
    call(service, request, |exchange, question: SendBatchRequest| async move {
        let SendBatchRequest { topic, messages } = question;
        let sent = send_all(&exchange, topic.as_deref(), messages).await?;
        let result = |sent: Answer<Sent>| match sent {
            Ok(sent) => BatchResult::Sent(sent),
            Err(failure) => BatchResult::Refused { error: problem(&exchange, &failure) },
        };
        Ok(SentBatch { results: sent.into_iter().map(result).collect() })
    })
    .await
}

/// What went wrong with one of many.
fn problem(exchange: &Exchange, failure: &Failure) -> Box<Problem> {
    exchange.service.metrics.refused(failure.error.kind());
    Box::new(answer::problem(failure, &exchange.caller.corr_id))
}

fn no_answer() -> Failure {
    Failure::new(ErrorKind::Internal, "the store gave no answer")
}

fn conflict_wanted(exchange: &Exchange) -> Answer<bool> {
    match exchange.head.headers.get("x-idempotency-mode").map(|value| value.as_bytes()) {
        None | Some(b"200-flag") => Ok(false),
        Some(b"409-conflict") => Ok(true),
        Some(_) => {
            let bound = "200-flag, 409-conflict";
            Err(Error::invalid("x-idempotency-mode", "something else", bound).into())
        }
    }
}

/// Sends what makes sense; one result each, in order.
async fn send_all(
    exchange: &Exchange,
    topic: Option<&str>,
    messages: Vec<BatchMessage>,
) -> Answer<Vec<Answer<Sent>>> {
    let facts = exchange.facts();
    topic.map(Name::parse).transpose()?;
    let mut results: Vec<Option<Answer<Sent>>> = Vec::with_capacity(messages.len());
    let mut good = Vec::with_capacity(messages.len());
    for mut message in messages {
        let own = message.topic.take();
        let named = own.as_deref().or(topic).ok_or_else(|| {
            Error::new(ErrorKind::InvalidParameter, "a message names no topic").with_field("topic")
        });
        let prepared = named.and_then(Name::parse).and_then(|mailbox| {
            let message = outgoing(message, &facts);
            let message = message.map_err(|error| error.with_mailbox(&mailbox))?;
            Ok((mailbox, message))
        });
        match prepared {
            Ok(prepared) => {
                good.push(prepared);
                results.push(None);
            }
            Err(error) => results.push(Some(Err(error.into()))),
        }
    }
    let mut sent = exchange.service.send(&exchange.caller, good).await?.into_iter();
    let mut next = || match sent.next() {
        Some(Ok(sent)) => Ok(Sent { msg_id: sent.id.to_string(), duplicate: sent.duplicate }),
        Some(Err(error)) => Err(error.into()),
        None => Err(no_answer()),
    };
    Ok(results.into_iter().map(|result| result.unwrap_or_else(&mut next)).collect())
}

/// Receives.
#[utoipa::path(post, path = "/v1/recv", request_body = ReceiveRequest, tag = "messages",
    responses((status = 200, body = Received), Problems))]
pub(crate) async fn receive(State(service): Shared, request: Request) -> Response {
    call_for_response(service, request, async |exchange: Exchange, question: ReceiveRequest| {
        let Exchange { service, caller, peer, place, room, .. } = exchange;
        // It may wait for long, and has no body any more.
        drop(room);
        let ReceiveRequest { topic, visibility_ms, max_messages, max_bytes, wait_ms } = question;
        let mut asked = service.asked(&topic, visibility_ms, max_messages, max_bytes)?;
        asked.wait = service.patience(Duration::from_millis(wait_ms.unwrap_or(0)))?;
        let taken = service.receive(&caller, &asked, place).await?;
        let messages = service.envelopes(&caller, &asked, taken.deliveries, || None);
        Ok(hand_over::response(Received { messages }.into_json(), taken.hand_over, &peer))
    })
    .await
}

/// Receives until the client leaves: one envelope a line, and empty lines as signs of life. No more
/// than `max_messages` are in flight; what is not settled when the client leaves is given back. If
/// the service ends it, the last line is a problem, and what is in flight can still be settled.
#[utoipa::path(post, path = "/v1/recv/stream", request_body = ReceiveRequest, tag = "messages",
    responses((status = 200, content_type = "application/x-ndjson", body = String), Problems))]
pub(crate) async fn receive_stream(State(service): Shared, request: Request) -> Response {
    call_for_response(service, request, async |exchange: Exchange, question: ReceiveRequest| {
        super::stream::response(exchange, question)
    })
    .await
}

/// Acknowledges a delivery: the message is done, and gone.
#[utoipa::path(post, path = "/v1/ack/{msg_id}", request_body = Option<AckRequest>, tag = "messages",
    params(("msg_id" = String, Path)), responses((status = 200, body = Done), Problems))]
pub(crate) async fn ack(
    State(service): Shared,
    Segment(msg_id): Segment,
    request: Request,
) -> Response {
    call_or_nothing(service, request, |exchange, question: AckRequest| async move {
        let delivery = Delivery::named(Some(&msg_id?), question.receipt_handle)?;
        settle_one(&exchange, Item { delivery, wish: Wish::Acknowledge }).await
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
    call_or_nothing(service, request, |exchange, question: NackRequest| async move {
        let NackRequest { receipt_handle, reason, delay_ms, dead } = question;
        let delivery = Delivery::named(Some(&msg_id?), receipt_handle)?;
        let wish = nack_wish(reason, delay_ms, dead, None)?;
        settle_one(&exchange, Item { delivery, wish }).await
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
    call(service, request, |exchange, question: ExtendRequest| async move {
        let delivery = Delivery::named(Some(&msg_id?), question.receipt_handle)?;
        let wish = Wish::Extend(Duration::from_millis(question.visibility_ms));
        settle_one(&exchange, Item { delivery, wish }).await
    })
    .await
}

async fn settle_one(exchange: &Exchange, item: Item) -> Answer<Done> {
    let mut settled = exchange.service.settle(&exchange.caller, vec![item]).await?;
    settled.pop().ok_or_else(no_answer)??;
    Ok(Done { ok: true })
}

fn nack_wish(
    reason: Option<String>,
    delay_ms: Option<u64>,
    dead: Option<bool>,
    dead_reason_word: Option<&str>,
) -> Answer<Wish> {
    let is_dead = dead.unwrap_or(false);
    if is_dead && delay_ms.is_some() {
        let error = Error::invalid("delay_ms", "given", "nothing for a dead letter");
        return Err(error.into());
    }
    if !is_dead && dead_reason_word.is_some() {
        return Err(Error::invalid("dead_reason", "given", "nothing unless `dead`").into());
    }
    if !is_dead {
        return Ok(Wish::Nack(delay_ms.map(Duration::from_millis), reason));
    }
    let word = dead_reason_word.map(dead_reason).transpose()?;
    Ok(Wish::Reject(word.unwrap_or(DeadReason::Rejected), reason))
}

/// Settles several deliveries.
#[utoipa::path(post, path = "/v1/settle/batch", request_body = SettleBatchRequest,
    tag = "messages", responses((status = 200, body = SettledBatch), Problems))]
pub(crate) async fn settle_batch(State(service): Shared, request: Request) -> Response {
    call(service, request, |exchange, question: SettleBatchRequest| async move {
        let items = question.items.into_iter().map(item).collect::<Answer<Vec<Item>>>()?;
        let settled = exchange.service.settle(&exchange.caller, items).await?;
        let result = |settled: Answer<()>| match settled {
            Ok(()) => SettleResult::Settled { ok: true },
            Err(failure) => SettleResult::Refused { error: problem(&exchange, &failure) },
        };
        Ok(SettledBatch { results: settled.into_iter().map(result).collect() })
    })
    .await
}

fn item(it: SettleItem) -> Answer<Item> {
    let delivery = Delivery::named(it.msg_id.as_deref(), it.receipt_handle)?;
    let only_of = |op: &'static str, field: &'static str, is_given: bool| {
        if is_given { Err(Error::invalid(field, "given", op)) } else { Ok(()) }
    };
    if it.op != SettleOp::Nack {
        let what = "nothing unless `op` is `nack`";
        only_of(what, "delay_ms", it.delay_ms.is_some())?;
        only_of(what, "dead", it.dead.is_some() || it.dead_reason.is_some())?;
        only_of(what, "reason", it.reason.is_some())?;
    }
    if it.op != SettleOp::Extend {
        let what = "nothing unless `op` is `extend`";
        only_of(what, "visibility_ms", it.visibility_ms.is_some())?;
    }
    let wish = match it.op {
        SettleOp::Ack => Wish::Acknowledge,
        SettleOp::Nack => nack_wish(it.reason, it.delay_ms, it.dead, it.dead_reason.as_deref())?,
        SettleOp::Extend => {
            let time = it.visibility_ms.ok_or_else(|| {
                let message = "an extension says for how long";
                Error::new(ErrorKind::InvalidParameter, message).with_field("visibility_ms")
            })?;
            Wish::Extend(Duration::from_millis(time))
        }
        SettleOp::Return => Wish::Return,
    };
    Ok(Item { delivery, wish })
}

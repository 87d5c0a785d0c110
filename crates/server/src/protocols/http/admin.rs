//! Mailboxes as a whole, messages that are looked at, dead letters.
#![expect(unused_qualifications, reason = "the macros of utoipa write them")]

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use mailbox::{DeadReason, Error, ErrorKind, MessageId, Name, Peek};
use mailbox_wire::json::{
    Abilities, DeadRequest, Deleted, LookUpRequest, Ok as Done, PolicyChange, Purged, Record,
    Records, Removed, Reprocessed, Topic, TopicEntry, Topics,
};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::convert;
use super::exchange::{Exchange, ask, call, call_for_response, for_response};
use super::hand_over;
use super::path::{Asked, Segment};
use super::problems::Problems;
use crate::admission::Room;
use crate::calls::HandOver;
use crate::failure::{Answer, Failure};
use crate::service::Service;

type Shared = State<Arc<Service>>;

/// Which mailboxes to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// From behind this name.
    after: Option<String>,
    /// At most this many; 100 if there is none.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// With what is in each.
    stats: Option<bool>,
}

/// Which messages to look at.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PeekQuery {
    /// At most this many; 10 if there is none.
    #[param(minimum = 0, maximum = 256)]
    limit: Option<u32>,
}

/// Which dead letters to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadQuery {
    /// From behind the one with this `order`.
    after: Option<u64>,
    /// At most this many; 100 if there is none.
    #[param(minimum = 0, maximum = 256)]
    limit: Option<u32>,
}

/// Where a message is.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessageQuery {
    /// The mailbox, if it is known: without it all are looked through.
    topic: Option<String>,
}

/// Lists mailboxes that the capability covers, sorted by name.
#[utoipa::path(get, path = "/v1/topics", tag = "topics", params(ListQuery),
    responses((status = 200, body = Topics), Problems))]
pub(crate) async fn list(
    State(service): Shared,
    Asked(query): Asked<ListQuery>,
    request: Request,
) -> Response {
    ask(service, request, |exchange| async move {
        let query = query?;
        let after = query.after.as_deref().map(Name::parse).transpose()?;
        let limit = query.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(Error::invalid("limit", limit, "1..=1000").into());
        }
        let (service, caller) = (&exchange.service, &exchange.caller);
        let mut topics = Vec::new();
        for name in service.list(caller, after, limit).await? {
            let stats = match query.stats {
                Some(true) => Some(convert::stats(&service.stats(caller, &name).await?)),
                _ => None,
            };
            topics.push(TopicEntry { topic: name.to_string(), stats });
        }
        Ok(Topics { topics })
    })
    .await
}

/// What is in a mailbox, and its rules.
#[utoipa::path(get, path = "/v1/topics/{topic}", tag = "topics", params(("topic" = String, Path)),
    responses((status = 200, body = Topic), Problems))]
pub(crate) async fn topic(
    State(service): Shared,
    Segment(topic): Segment,
    request: Request,
) -> Response {
    ask(service, request, |exchange| async move {
        let mailbox = Name::parse(&topic?)?;
        let (service, caller) = (&exchange.service, &exchange.caller);
        let stats = service.stats(caller, &mailbox).await?;
        let policy = service.policy(caller, &mailbox).await?;
        let (stats, policy) = (convert::stats(&stats), convert::policy(&policy));
        Ok(Topic { topic: mailbox.to_string(), stats, policy })
    })
    .await
}

/// Changes the rules of a mailbox, which is made if it is not there.
#[utoipa::path(put, path = "/v1/topics/{topic}", tag = "topics", params(("topic" = String, Path)),
    request_body = PolicyChange, responses((status = 200, body = Done), Problems))]
pub(crate) async fn configure(
    State(service): Shared,
    Segment(topic): Segment,
    request: Request,
) -> Response {
    call(service, request, |exchange, change: PolicyChange| async move {
        let mailbox = Name::parse(&topic?)?;
        let (service, caller) = (&exchange.service, &exchange.caller);
        let policy = service.policy(caller, &mailbox).await?;
        service.configure(caller, &mailbox, convert::changed(policy, change)?).await?;
        Ok(Done { ok: true })
    })
    .await
}

/// Removes a mailbox with all its messages, dead letters and rules.
#[utoipa::path(delete, path = "/v1/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)), responses((status = 200, body = Removed), Problems))]
pub(crate) async fn remove(
    State(service): Shared,
    Segment(topic): Segment,
    request: Request,
) -> Response {
    ask(service, request, |exchange| async move {
        let mailbox = Name::parse(&topic?)?;
        let removed = exchange.service.remove(&exchange.caller, &mailbox).await?;
        Ok(Removed { removed })
    })
    .await
}

/// Removes every message that is not a dead letter.
#[utoipa::path(post, path = "/v1/topics/{topic}/purge", tag = "topics",
    params(("topic" = String, Path)), responses((status = 200, body = Purged), Problems))]
pub(crate) async fn purge(
    State(service): Shared,
    Segment(topic): Segment,
    request: Request,
) -> Response {
    ask(service, request, |exchange| async move {
        let mailbox = Name::parse(&topic?)?;
        Ok(Purged { removed: exchange.service.purge(&exchange.caller, &mailbox).await? })
    })
    .await
}

/// Shows messages that are not dead, the oldest first, without receiving them.
#[utoipa::path(get, path = "/v1/topics/{topic}/peek", tag = "topics",
    params(("topic" = String, Path), PeekQuery),
    responses((status = 200, body = Records), Problems))]
pub(crate) async fn peek(
    State(service): Shared,
    Segment(topic): Segment,
    Asked(query): Asked<PeekQuery>,
    request: Request,
) -> Response {
    for_response(service, request, async |exchange| {
        let peek = Peek::Live { limit: query?.limit.unwrap_or(10) };
        show(&exchange, &topic?, &peek).await
    })
    .await
}

/// Shows messages by their ids, in whatever state; those that are gone are left out.
#[utoipa::path(post, path = "/v1/topics/{topic}/lookup", tag = "topics",
    params(("topic" = String, Path)), request_body = LookUpRequest,
    responses((status = 200, body = Records), Problems))]
pub(crate) async fn look_up(
    State(service): Shared,
    Segment(topic): Segment,
    request: Request,
) -> Response {
    call_for_response(service, request, async |exchange, question: LookUpRequest| {
        show(&exchange, &topic?, &convert::these(&question)).await
    })
    .await
}

async fn show(exchange: &Exchange, topic: &str, peek: &Peek) -> Answer<Response> {
    let mailbox = Name::parse(topic)?;
    let service = &exchange.service;
    let shards = service.config().shards;
    let (found, room) = service.peek(&exchange.caller, &mailbox, peek).await?;
    let record = |it| convert::record(&mailbox, it, shards);
    let records = Records { messages: found.into_iter().map(record).collect() };
    Ok(answer_with(exchange, mailbox.clone(), &records, room))
}

/// An answer that has payloads in it.
fn answer_with(exchange: &Exchange, mailbox: Name, shown: &impl Serialize, room: Room) -> Response {
    let hand_over = HandOver::of_nothing(&exchange.service, mailbox, room);
    let json = serde_json::to_vec(shown).expect("text, numbers and maps can be written");
    hand_over::response(json, hand_over, &exchange.peer)
}

/// Shows one message, in whatever state.
#[utoipa::path(get, path = "/v1/messages/{msg_id}", tag = "topics",
    params(("msg_id" = String, Path), MessageQuery),
    responses((status = 200, body = Record), Problems))]
pub(crate) async fn message(
    State(service): Shared,
    Segment(msg_id): Segment,
    Asked(query): Asked<MessageQuery>,
    request: Request,
) -> Response {
    for_response(service, request, async |exchange| {
        let mailbox = query?.topic.as_deref().map(Name::parse).transpose()?;
        let id = MessageId::from_text(&msg_id?);
        let (service, caller) = (&exchange.service, &exchange.caller);
        let (mailbox, record) = service.find_message(caller, mailbox, &id).await?;
        if record.death.is_some_and(|death| death.reason == DeadReason::Integrity) {
            let why = record.last_error.as_deref().unwrap_or("its payload is not what was sent");
            let error = Error::new(ErrorKind::Integrity, format!("a dead letter: {why}"));
            return Err(Failure::from(error.with_mailbox(&mailbox)));
        }
        let room = service.room_for(caller, std::slice::from_ref(&record))?;
        let shown = convert::record(&mailbox, record, service.config().shards);
        Ok(answer_with(&exchange, mailbox, &shown, room))
    })
    .await
}

/// Lists dead letters in order of dying.
#[utoipa::path(get, path = "/v1/dlq/{topic}", tag = "dead letters",
    params(("topic" = String, Path), DeadQuery),
    responses((status = 200, body = Records), Problems))]
pub(crate) async fn dead(
    State(service): Shared,
    Segment(topic): Segment,
    Asked(query): Asked<DeadQuery>,
    request: Request,
) -> Response {
    for_response(service, request, async |exchange| {
        let query = query?;
        let peek = Peek::Dead { after: query.after, limit: query.limit.unwrap_or(100) };
        // As the document has it.
        if let Some(after) = query.after.filter(|after| i64::try_from(*after).is_err()) {
            return Err(Error::invalid("after", after, format_args!("0..={}", i64::MAX)).into());
        }
        show(&exchange, &topic?, &peek).await
    })
    .await
}

/// Puts dead letters back in line, starting at delivery 1.
#[utoipa::path(post, path = "/v1/dlq/reprocess", tag = "dead letters",
    request_body = DeadRequest, responses((status = 200, body = Reprocessed), Problems))]
pub(crate) async fn reprocess(State(service): Shared, request: Request) -> Response {
    call(service, request, |exchange, question: DeadRequest| async move {
        let (mailbox, which) = (Name::parse(&question.topic)?, convert::selection(&question)?);
        let done = exchange.service.reprocess(&exchange.caller, &mailbox, &which).await?;
        let (reprocessed, remaining) = done;
        Ok(Reprocessed { reprocessed, remaining })
    })
    .await
}

/// Deletes dead letters for good.
#[utoipa::path(post, path = "/v1/dlq/delete", tag = "dead letters",
    request_body = DeadRequest, responses((status = 200, body = Deleted), Problems))]
pub(crate) async fn delete_dead(State(service): Shared, request: Request) -> Response {
    call(service, request, |exchange, question: DeadRequest| async move {
        let (mailbox, which) = (Name::parse(&question.topic)?, convert::selection(&question)?);
        let done = exchange.service.delete_dead(&exchange.caller, &mailbox, &which).await?;
        let (deleted, remaining) = done;
        Ok(Deleted { deleted, remaining })
    })
    .await
}

/// What the service's store can do.
#[utoipa::path(get, path = "/v1/abilities", tag = "service",
    responses((status = 200, body = Abilities), Problems))]
pub(crate) async fn abilities(State(service): Shared, request: Request) -> Response {
    ask(service, request, |exchange| async move {
        let service = &exchange.service;
        exchange.caller.may_anything()?;
        Ok(convert::abilities(service.store.abilities(), &service.config()))
    })
    .await
}

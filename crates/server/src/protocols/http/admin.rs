//! Mailboxes as a whole, messages that are looked at, dead letters.
#![expect(unused_qualifications, reason = "the macros of utoipa write them")]

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use mailbox_wire::call::{
    self, ConfigureRequest, DeadListRequest, MessageRequest, PeekRequest, TopicRequest,
    TopicsRequest,
};
use mailbox_wire::json::{
    Abilities, DeadRequest, Deleted, LookUpRequest, Ok as Done, PolicyChange, Purged, Record,
    Records, Removed, Reprocessed, Topic, Topics,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::exchange::{ask, call};
use super::path::{Asked, Segment};
use super::problems::Problems;
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
    ask(service, request, || {
        let ListQuery { after, limit, stats } = query?;
        // One that is too large for a number is too large in any case.
        let limit = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        Ok(call::Request::Topics(TopicsRequest { after, limit, stats }))
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
    ask(service, request, || Ok(call::Request::Topic(TopicRequest { topic: topic? }))).await
}

/// Changes the rules of a mailbox, which is made if it is not there.
#[utoipa::path(put, path = "/v1/topics/{topic}", tag = "topics", params(("topic" = String, Path)),
    request_body = PolicyChange, responses((status = 200, body = Done), Problems))]
pub(crate) async fn configure(
    State(service): Shared,
    Segment(topic): Segment,
    request: Request,
) -> Response {
    call(service, request, |policy| {
        Ok(call::Request::Configure(ConfigureRequest { topic: topic?, policy }))
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
    ask(service, request, || Ok(call::Request::Remove(TopicRequest { topic: topic? }))).await
}

/// Removes every message that is not a dead letter.
#[utoipa::path(post, path = "/v1/topics/{topic}/purge", tag = "topics",
    params(("topic" = String, Path)), responses((status = 200, body = Purged), Problems))]
pub(crate) async fn purge(
    State(service): Shared,
    Segment(topic): Segment,
    request: Request,
) -> Response {
    ask(service, request, || Ok(call::Request::Purge(TopicRequest { topic: topic? }))).await
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
    ask(service, request, || {
        let (limit, topic) = (query?.limit, topic?);
        Ok(call::Request::Peek(PeekRequest { topic, limit }))
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
    call(service, request, |these| Ok(call::Request::LookUp(topic?, these))).await
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
    ask(service, request, || {
        let (topic, msg_id) = (query?.topic, msg_id?);
        Ok(call::Request::Message(MessageRequest { msg_id, topic }))
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
    ask(service, request, || {
        let DeadQuery { after, limit } = query?;
        Ok(call::Request::Dead(DeadListRequest { topic: topic?, after, limit }))
    })
    .await
}

/// Puts dead letters back in line, starting at delivery 1.
#[utoipa::path(post, path = "/v1/dlq/reprocess", tag = "dead letters",
    request_body = DeadRequest, responses((status = 200, body = Reprocessed), Problems))]
pub(crate) async fn reprocess(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::Reprocess(question))).await
}

/// Deletes dead letters for good.
#[utoipa::path(post, path = "/v1/dlq/delete", tag = "dead letters",
    request_body = DeadRequest, responses((status = 200, body = Deleted), Problems))]
pub(crate) async fn delete_dead(State(service): Shared, request: Request) -> Response {
    call(service, request, |question| Ok(call::Request::DeleteDead(question))).await
}

/// What the service's store can do.
#[utoipa::path(get, path = "/v1/abilities", tag = "service",
    responses((status = 200, body = Abilities), Problems))]
pub(crate) async fn abilities(State(service): Shared, request: Request) -> Response {
    ask(service, request, || Ok(call::Request::Abilities)).await
}

//! HTTP: JSON calls, and lines of JSON for a receive that goes on. What it looks like is in
//! `docs/openapi.json`, which is made from this.

mod admin;
mod answer;
mod body;
mod capabilities;
pub(crate) mod exchange;
mod health;
mod messages;
mod outgoing;
mod path;
mod problems;
mod serve;
mod stream;

use std::sync::Arc;

use axum::Router;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use exchange::read_body;
pub(crate) use outgoing::{InBody, Paced};
pub(crate) use serve::{Handler, NO_PLACE, serve};

use super::grpc;
use crate::service::Service;

fn routes() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::with_openapi(document())
        .routes(routes!(messages::send))
        .routes(routes!(messages::send_batch))
        .routes(routes!(messages::receive))
        .routes(routes!(messages::receive_stream))
        .routes(routes!(messages::ack))
        .routes(routes!(messages::nack))
        .routes(routes!(messages::extend))
        .routes(routes!(messages::settle_batch))
        .routes(routes!(admin::list))
        .routes(routes!(admin::topic, admin::configure, admin::remove))
        .routes(routes!(admin::purge))
        .routes(routes!(admin::peek))
        .routes(routes!(admin::look_up))
        .routes(routes!(admin::message))
        .routes(routes!(admin::dead))
        .routes(routes!(admin::reprocess))
        .routes(routes!(admin::delete_dead))
        .routes(routes!(admin::abilities))
        .routes(routes!(capabilities::mint))
        .routes(routes!(capabilities::revoke))
        .routes(routes!(capabilities::rotate))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::openapi))
        .routes(routes!(health::metrics))
}

/// The parts of the document that no call describes.
fn document() -> OpenApi {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("a capability: a macaroon, base64url without padding"))
        .build();
    let mut components = Components::new();
    components.add_security_scheme("capability", SecurityScheme::Http(bearer));
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Mailbox")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(
                    "Mailboxes over HTTP: at-least-once delivery with explicit acknowledgement.",
                ))
                .build(),
        )
        .components(Some(components))
        .security(Some([SecurityRequirement::new("capability", [""; 0])]))
        .build()
}

/// The calls, ready to be made.
pub(crate) fn router(service: &Arc<Service>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .with_state(Arc::clone(service))
        .merge(grpc::router(service))
        .fallback(health::no_such_call)
        .method_not_allowed_fallback(health::no_such_method)
}

/// What can be called, as an OpenAPI document in JSON.
#[must_use]
pub fn openapi() -> String {
    let (_, document) = routes().split_for_parts();
    let mut json = document.to_pretty_json().expect("it is text, lists and maps");
    json.push('\n');
    json
}

//! gRPC, on the same port as HTTP: the calls of `proto/mailbox/v1/mailbox.proto`, health, and
//! reflection. Who may come is found out before a message is read, as for HTTP.

mod framing;
mod gate;
mod guests;
mod health;
mod methods;
mod refusal;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use mailbox_wire::proto::DESCRIPTORS;
use mailbox_wire::proto::v1::mailbox_server::MailboxServer;
use tonic_health::pb::health_server::HealthServer;

use crate::admission::Asks;
use crate::service::Service;
use gate::Gate;
use guests::guests;
use health::Answers;
use methods::Methods;

pub(crate) use refusal::Counted;

/// Largest message that comes in, if no payload is larger.
const MESSAGE: usize = 4 * 1024 * 1024;
/// Room for what a message has beside its payload.
const BESIDE: usize = 1024 * 1024;
/// The descriptions of what can be asked beside the service itself.
const HEALTH: &[u8] = tonic_health::pb::FILE_DESCRIPTOR_SET;

/// The largest message: a payload that the store takes always gets through.
fn largest(service: &Service) -> usize {
    MESSAGE.max(service.store.abilities().max_payload.saturating_add(BESIDE))
}

/// The calls, ready to be made.
pub(crate) fn router(service: &Arc<Service>) -> Router {
    let largest = largest(service);
    let methods = MailboxServer::new(Methods(Arc::clone(service)))
        .max_decoding_message_size(largest)
        .max_encoding_message_size(usize::MAX);
    let gate = Gate::new(service, methods, largest);
    let call = move |request: Request| {
        let gate = gate.clone();
        async move { gate.answer(request).await }
    };
    let health = HealthServer::new(Answers(Arc::clone(service)));
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(HEALTH)
    };
    // Both versions: tools ask for either.
    let (Ok(v1), Ok(v1alpha)) = (describe().build_v1(), describe().build_v1alpha()) else {
        unreachable!("the descriptions were made together with the code");
    };
    Router::new()
        .route("/mailbox.v1.Mailbox/{method}", post(call))
        .route("/grpc.health.v1.Health/{method}", guests(service, Asks::Little, health))
        .route("/grpc.reflection.v1.ServerReflection/{method}", guests(service, Asks::Much, v1))
        .route(
            "/grpc.reflection.v1alpha.ServerReflection/{method}",
            guests(service, Asks::Much, v1alpha),
        )
}

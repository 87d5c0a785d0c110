//! Whether the service is ready, as gRPC asks for it. No capability is needed, as for `/readyz`.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{Stream, unfold};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::refusal::status;
use crate::protocols::http::exchange::CorrId;
use crate::service::Service;

/// What can be asked for by name; nothing is the service as a whole.
const NAMES: [&str; 2] = ["", "mailbox.v1.Mailbox"];

/// Answers from what the service knows about itself.
#[derive(Debug)]
pub(super) struct Answers(pub(super) Arc<Service>);

const fn word(is_ready: bool) -> ServingStatus {
    if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// One who watches.
struct Watching {
    service: Arc<Service>,
    corr_id: Arc<str>,
    /// Nothing for a name that is not known.
    ready: Option<watch::Receiver<bool>>,
    is_first: bool,
}

/// What is said next; with nothing behind it, it is the end.
type Said = Option<(Result<HealthCheckResponse, Status>, Option<Watching>)>;

impl Watching {
    /// Says how it is: at first, when that changes, and now and then, so that whoever is gone is
    /// noticed. A service that stops is not ready, and whoever watches is to look elsewhere.
    async fn next(mut self) -> Said {
        let heartbeat = self.service.settings().timeouts.heartbeat;
        let draining = self.service.draining.clone();
        if !std::mem::take(&mut self.is_first) {
            tokio::select! {
                biased;
                () = draining.cancelled() => return self.last(),
                () = changed(self.ready.as_mut()) => {}
                () = tokio::time::sleep(heartbeat) => {}
            }
        }
        let status = match &mut self.ready {
            Some(ready) => word(*ready.borrow_and_update()),
            // As the protocol has it: it may come to be known later.
            None => ServingStatus::ServiceUnknown,
        };
        Some((Ok(response(status)), Some(self)))
    }

    fn last(mut self) -> Said {
        if self.ready.take().is_some() {
            return Some((Ok(response(ServingStatus::NotServing)), Some(self)));
        }
        let failure = self.service.check_open().err()?;
        Some((Err(status(&failure, &self.corr_id)), None))
    }
}

/// Until it is otherwise; never where nothing is known.
async fn changed(ready: Option<&mut watch::Receiver<bool>>) {
    let has_changed = match ready {
        Some(ready) => ready.changed().await.is_ok(),
        None => false,
    };
    if !has_changed {
        std::future::pending().await
    }
}

#[tonic::async_trait]
impl Health for Answers {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !NAMES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("there is no such service"));
        }
        let readiness = self.0.readiness().await;
        Ok(Response::new(response(word(readiness.reads && readiness.writes))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let corr_id = request.extensions().get::<CorrId>().map(|id| Arc::clone(&id.0));
        let corr_id = corr_id.unwrap_or_default();
        let mut ready = None;
        if NAMES.contains(&request.get_ref().service.as_str()) {
            ready = Some(self.0.ready.subscribe());
            // What is known may be old: nobody looks while nobody watches.
            self.0.tell_ready().await;
        }
        let service = Arc::clone(&self.0);
        let watching = Watching { service, corr_id, ready, is_first: true };
        Ok(Response::new(Box::pin(unfold(Some(watching), async |it| it?.next().await))))
    }
}

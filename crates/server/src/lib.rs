//! The service: mailboxes of any backend, reached over the network.
//!
//! [`run`] takes connections from listeners, and answers them from a [`Service`], which has a store
//! (any [`Backend`](mailbox::Backend)), [`Auth`] and a [`Config`]. It holds no queue logic.

mod admission;
pub mod auth;
mod calls;
pub mod config;
mod failure;
mod handouts;
mod listen;
mod metrics;
mod protocols;
mod service;
pub mod settings;
mod traces;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use auth::Auth;
pub use config::Config;
pub use listen::Listener;
pub use protocols::http::openapi;
pub use service::Service;
pub use traces::Traces;

use listen::accept_all;
use protocols::http::Handler;

/// How often to look whether another process has revoked something.
const REFRESH: Duration = Duration::from_secs(1);

/// Serves until `stop`, then lets calls that are being worked on end, for as long as the drain time
/// allows. The store is not closed: it belongs to whoever opened it.
///
/// # Cancel safety
/// Dropped, it cuts off every connection; what was promised is in the store.
pub async fn run(listeners: Vec<Listener>, service: Arc<Service>, stop: CancellationToken) {
    let (handler, connections) = (Handler::new(&service), TaskTracker::new());
    let acceptors = TaskTracker::new();
    for listener in listeners {
        acceptors.spawn(accept_all(listener, handler.clone(), connections.clone()));
    }
    let refresh = tokio::spawn(refresh(Arc::clone(&service)));
    stop.cancelled().await;
    service.stop();
    for tracker in [&acceptors, &connections, &service.tasks] {
        tracker.close();
    }
    let drain = service.config().timeouts.drain;
    let ended = async {
        acceptors.wait().await;
        connections.wait().await;
        service.tasks.wait().await;
    };
    if tokio::time::timeout(drain, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut off after the drain time");
    }
    refresh.abort();
}

async fn refresh(service: Arc<Service>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let looking = Arc::clone(&service);
        let looked = tokio::task::spawn_blocking(move || looking.refresh()).await;
        if let Ok(Err(error)) = looked {
            tracing::error!(%error, "cannot read keys or revocations");
        }
        service.tell_ready().await;
    }
}

//! One connection: requests come in, answers go out.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::HeaderValue;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service as _;

use super::answer::{Kind, X_CORR_ID};
use super::exchange::CorrId;
use crate::listen::Peer;
use crate::listen::Timed;
use crate::metrics::route_of;
use crate::service::Service;

/// Longest head of a request, and most of a body that is read at a time.
const BUFFER: usize = 64 * 1024;

/// Answers requests.
#[derive(Debug, Clone)]
pub(crate) struct Handler {
    service: Arc<Service>,
    router: Router,
}

impl Handler {
    pub(crate) fn new(service: &Arc<Service>) -> Self {
        Self { service: Arc::clone(service), router: super::router(service) }
    }

    pub(crate) const fn service(&self) -> &Arc<Service> {
        &self.service
    }

    async fn answer(mut self, mut request: Request<Incoming>, peer: Arc<Peer>) -> Response {
        let corr_id = CorrId::of(request.headers());
        let (route, method) = (route_of(request.uri().path()), request.method().clone());
        request.extensions_mut().insert(corr_id.clone());
        request.extensions_mut().insert(peer);
        let Ok(mut response) = self.router.call(request.map(Body::new)).await;
        if let Ok(value) = HeaderValue::from_str(&corr_id.0) {
            response.headers_mut().insert(X_CORR_ID, value);
        }
        if let Some(Kind(kind)) = response.extensions().get() {
            self.service.metrics.refused(*kind);
        }
        self.service.metrics.answered(route, &method, response.status().as_u16());
        response
    }
}

/// Serves one connection until it ends, or the service does.
pub(crate) async fn serve<S>(stream: Timed<S>, peer: Arc<Peer>, handler: Handler)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    use crate::listen::Doing;

    let draining = handler.service.draining.clone();
    let answer = service_fn(move |request: Request<Incoming>| {
        let (handler, peer) = (handler.clone(), Arc::clone(&peer));
        async move {
            peer.set(Doing::Work);
            let response = handler.answer(request, Arc::clone(&peer)).await;
            peer.set(Doing::Answer);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        // The connection itself sees to that, and tells a head that is late from none at all.
        .header_read_timeout(None)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    // How a connection ends is its client's business.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = draining.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

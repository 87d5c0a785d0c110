//! One connection: requests come in, answers go out.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
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
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service as _;

use super::answer::{Kind, X_CORR_ID};
use super::exchange::CorrId;
use crate::listen::Peer;
use crate::listen::Timed;
use crate::metrics::{known_method, route_of};
use crate::service::Service;
use crate::traces::{Call, Parent, Trace};

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
}

/// One connection. Its own, so that requests on different ones do not count the same references.
struct Conversation {
    service: Arc<Service>,
    router: Mutex<Router>,
    peer: Arc<Peer>,
}

impl Conversation {
    async fn answer(&self, mut request: Request<Incoming>) -> Response {
        let corr_id = CorrId::of(request.headers());
        let (route, method) = (route_of(request.uri().path()), request.method().clone());
        request.extensions_mut().insert(corr_id.clone());
        request.extensions_mut().insert(Arc::clone(&self.peer));
        let trace = self.trace(&request, route, &corr_id);
        if let Some(trace) = &trace {
            request.extensions_mut().insert(trace.clone());
        }
        let called = self.router.lock().call(request.map(Body::new));
        let Ok(mut response) = called.await;
        if let Ok(value) = HeaderValue::from_str(&corr_id.0) {
            response.headers_mut().insert(X_CORR_ID, value);
        }
        let failed = response.extensions().get().map(|Kind(kind)| *kind);
        if let Some(kind) = failed {
            self.service.metrics.refused(kind);
        }
        if let Some(trace) = &trace {
            trace.end(response.status().as_u16(), failed);
        }
        self.service.metrics.answered(route, &method, response.status().as_u16());
        response
    }

    /// The span of a call, if calls are traced. Asking how the service is is no call.
    fn trace(&self, request: &Request<Incoming>, route: &str, corr_id: &CorrId) -> Option<Trace> {
        let traces = self.service.traces.as_ref().filter(|_| route.starts_with("/v1/"))?;
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        Some(traces.begin(Call {
            name: format!("{} {route}", known_method(request.method())),
            corr_id: &corr_id.0,
            parent: Parent { traceparent: text("traceparent"), tracestate: text("tracestate") },
        }))
    }
}

/// Serves one connection until it ends, or the service does.
pub(crate) async fn serve<S>(stream: Timed<S>, peer: Arc<Peer>, handler: Handler)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    use crate::listen::Doing;

    let Handler { service, router } = handler;
    let conversation = Conversation { service: Arc::clone(&service), router: router.into(), peer };
    let conversation = Arc::new(conversation);
    let answer = service_fn(move |request: Request<Incoming>| {
        let conversation = Arc::clone(&conversation);
        async move {
            conversation.peer.set(Doing::Work);
            let response = conversation.answer(request).await;
            conversation.peer.set(Doing::Answer);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        // The connection itself sees to that, and tells a head that is late from none at all.
        .header_read_timeout(None)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), answer);
    let (mut connection, mut told) = (pin!(connection), pin!(service.draining.cancelled()));
    let (mut is_listening, mut is_closing) = (false, false);
    poll_fn(|context| {
        // Once is enough for being woken; each time would be a lock that all connections share.
        if !is_listening {
            is_listening = true;
            let _ = told.as_mut().poll(context);
        }
        if !is_closing && service.is_stopping() {
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
        // How a connection ends is its client's business.
        connection.as_mut().poll(context).map(drop)
    })
    .await;
}

//! One connection: requests come in, answers go out.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::future::{AbortHandle, abortable};
use http::{HeaderValue, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use super::answer::{Kind, X_CORR_ID};
use super::exchange::CorrId;
use super::outgoing::Outgoing;
use crate::listen::{Ending, Peer, Timed};
use crate::metrics::{known_method, route_of};
use crate::protocols::grpc::Counted;
use crate::service::Service;
use crate::traces::{Call, Parent, Trace};

/// Longest head of a request, and most of a body that is read at a time.
const BUFFER: usize = 64 * 1024;

/// What a client hears for whom there is no place.
pub(crate) const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-type: application/json\r\nx-corr-id: none\r\n\
    content-length: 145\r\n\r\n\
    {\"code\":\"E_UNAVAILABLE\",\"message\":\"too many connections are open\",\
    \"corr_id\":\"none\",\"kind\":\"connection\",\"retry_after_ms\":1000,\
    \"reason\":\"no_place\"}";

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
        let by_grpc = response.extensions().get().map(|counted: &Counted| counted.kind);
        let failed = by_grpc.or(response.extensions().get().map(|Kind(kind)| *kind));
        if let Some(kind) = failed {
            self.service.metrics.refused(kind);
        }
        // Over gRPC a call that failed is an answer like any other: what counts is why it did.
        let status = by_grpc.map_or(response.status().as_u16(), |kind| kind.status().http);
        if let Some(trace) = &trace {
            trace.end(status, failed);
        }
        self.service.metrics.answered(route, &method, status);
        response
    }

    /// The span of a call, if calls are traced. Asking how the service is is no call.
    fn trace(&self, request: &Request<Incoming>, route: &str, corr_id: &CorrId) -> Option<Trace> {
        let traces = self
            .service
            .traces
            .as_ref()
            .filter(|_| route.starts_with("/v1/") || route.starts_with("/mailbox."))?;
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        Some(traces.begin(Call {
            name: format!("{} {route}", known_method(request.method())),
            corr_id: &corr_id.0,
            parent: Parent { traceparent: text("traceparent"), tracestate: text("tracestate") },
        }))
    }
}

/// Requests of one connection that are worked on at a time, over HTTP/2.
const STREAMS: u32 = 128;
/// How much of one request, and of all requests of a connection, is taken before it is looked at.
const WINDOWS: (u32, u32) = (128 * 1024, 256 * 1024);

/// Longest head of one of them, with 32 bytes for each header: there may be many at a time.
const HEAD: u32 = 16 * 1024;

/// HTTP/1 or HTTP/2, whichever the client begins with.
fn builder(service: &Arc<Service>) -> auto::Builder<OnTasks> {
    let mut builder = auto::Builder::new(OnTasks(service.tasks.clone()));
    // The connection itself sees to that, and tells a head that is late from none at all.
    builder.http1().header_read_timeout(None).max_buf_size(BUFFER);
    builder
        .http2()
        .max_concurrent_streams(STREAMS)
        // A client may give up all that it has asked before anything of it was looked at, and
        // others that share its connection have nothing to do with that.
        .max_pending_accept_reset_streams(STREAMS as usize)
        .max_header_list_size(HEAD)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1);
    builder
}

tokio::task_local! {
    /// Ends the task of a request.
    static ENDING: AbortHandle;
}

/// Requests over HTTP/2 are tasks of their own, which are waited for at the end as all others. One
/// that is ended resets its stream, wherever it is: also where an answer waits for a window.
#[derive(Debug, Clone)]
struct OnTasks(TaskTracker);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for OnTasks {
    fn execute(&self, request: F) {
        let (request, ending) = abortable(request);
        self.0.spawn(ENDING.scope(ending, async { _ = request.await }));
    }
}

/// Serves one connection until it ends, or the service does.
pub(crate) async fn serve<S>(stream: Timed<S>, peer: Arc<Peer>, handler: Handler)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    use crate::listen::Doing;

    let Handler { service, router } = handler;
    let other = Arc::clone(&peer);
    let conversation = Conversation { service: Arc::clone(&service), router: router.into(), peer };
    let conversation = Arc::new(conversation);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        let conversation = Arc::clone(&conversation);
        async move {
            let cut = conversation.peer.cut.part();
            request.extensions_mut().insert(cut.clone());
            if request.version() == Version::HTTP_2 {
                let task = ENDING.try_with(AbortHandle::clone).ok();
                let ending = task.map(|task| Ending::new(task, cut));
                let at_work = conversation.peer.at_work();
                let response = conversation.answer(request).await;
                let outgoing = Outgoing::shared(response, &conversation.peer, at_work, ending);
                return Ok::<_, Infallible>(outgoing);
            }
            conversation.peer.set(Doing::Work);
            let response = conversation.answer(request).await;
            conversation.peer.set(Doing::Answer);
            Ok(Outgoing::of(response, &conversation.peer))
        }
    });
    let builder = builder(&service);
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    let (mut connection, mut told) = (pin!(connection), pin!(service.draining.cancelled()));
    let (mut is_listening, mut is_closing) = (false, false);
    poll_fn(|context| {
        // Once is enough for being woken; each time would be a lock that all connections share.
        if !is_listening {
            is_listening = true;
            let _ = told.as_mut().poll(context);
        }
        loop {
            if !is_closing && (service.is_stopping() || other.is_to_leave()) {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
            // How a connection ends is its client's business.
            let polled = connection.as_mut().poll(context).map(drop);
            if polled.is_ready() || is_closing || !other.is_to_leave() {
                return polled;
            }
        }
    })
    .await;
}

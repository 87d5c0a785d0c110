//! Traces of calls, as a collector gets them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox_server::Traces;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::canary::{Canaries, marked};
use crate::rig::{PATIENCE, Rig, receive};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A span, and what it says about the process that it comes from.
type Collected = (Span, Vec<KeyValue>);

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Collected>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let about = resource.resource.map(|it| it.attributes).unwrap_or_default();
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.0.lock().extend(spans.map(|span| (span, about.clone())));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts it, and says where.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        format!("http://{address}")
    }

    /// The one span of this name.
    fn span(&self, name: &str) -> Span {
        let spans = self.0.lock();
        let mut of_name = spans.iter().filter(|(span, _)| span.name == name);
        let found = of_name.next().unwrap_or_else(|| panic!("no span {name}")).0.clone();
        assert_eq!(of_name.count(), 0, "one call is one span");
        found
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|it| it.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key}: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn stop(traces: Traces) -> mailbox::Result<()> {
    tokio::task::spawn_blocking(move || traces.stop()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_span_of_its_callers_trace_and_a_receive_knows_the_senders() {
    let collector = Collector::default();
    let traces = Traces::start(&collector.start().await, 100).unwrap();
    let served = Rig::new().traced(&traces).start().await;
    let mut client = served.client().await;
    let said = format!("00-{TRACE}-{PARENT}-01");
    let header = [("traceparent", said.as_str()), ("x-corr-id", "the-call")];
    let sent = client.post_with("/v1/send", &header, &marked()).await;
    assert_eq!(sent.status, 200);
    client.send("jobs", "without a trace").await;
    let received = client.receive("jobs", 2, 30_000).await;
    assert_eq!(received.len(), 2);
    assert_eq!(client.ack_it(&received[0]).await.status, 200);
    client.raw("PUT", "/v1/topics/jobs", &[], b"{\"no\":1}").await.bad(400, "E_SCHEMA");
    assert_eq!(client.get("/v1/topics").await.status, 200);
    client.get("/healthz").await;
    stop(traces).await.unwrap();

    let spans: Vec<_> = collector.0.lock().clone();
    assert_eq!(spans.len(), 6, "two sends, a receive, an ack, a refusal and a list: {spans:?}");
    for (_, about) in &spans {
        assert_eq!(text(about, "service.name").as_deref(), Some("mailbox"));
    }
    let of_trace = |(span, _): &&Collected| hex(&span.trace_id) == TRACE;
    let (send, _) = spans.iter().find(of_trace).expect("in the caller's trace");
    assert_eq!((&*send.name, &*hex(&send.parent_span_id)), ("POST /v1/send", PARENT));
    let of = |key| text(&send.attributes, key);
    assert_eq!(of("messaging.operation.name").as_deref(), Some("send"));
    assert_eq!(of("messaging.destination.name").as_deref(), Some("jobs"));
    assert_eq!(of("mailbox.corr_id").as_deref(), Some("the-call"));
    assert_eq!(of("http.response.status_code").as_deref(), Some("200"));

    let receive = collector.span("POST /v1/recv");
    assert_ne!(hex(&receive.trace_id), TRACE, "a receive has a trace of its own");
    let links: Vec<_> =
        receive.links.iter().map(|it| (hex(&it.trace_id), hex(&it.span_id))).collect();
    assert_eq!(links, [(TRACE.to_owned(), PARENT.to_owned())], "but knows that of the sender");
    assert_eq!(text(&receive.attributes, "messaging.batch.message_count").as_deref(), Some("2"));
    let refused = collector.span("PUT /v1/topics/{topic}");
    assert_eq!(text(&refused.attributes, "error.type").as_deref(), Some("invalid_parameter"));
    let list = collector.span("GET /v1/topics");
    assert_eq!(text(&list.attributes, "messaging.destination.name"), None, "it is about none");
    let mut canaries = Canaries::new();
    canaries.add_capability(&served.operator);
    canaries.add_handle(received[0].receipt_handle.as_deref().unwrap());
    canaries.assert_not_in(&format!("{spans:?}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn how_many_calls_are_traced_is_for_the_operator_or_the_caller_to_say() {
    let collector = Collector::default();
    let traces = Traces::start(&collector.start().await, 0).unwrap();
    let served = Rig::new().traced(&traces).start().await;
    let mut client = served.client().await;
    client.send("jobs", "one").await;
    for flags in ["00", "01"] {
        let said = format!("00-{TRACE}-{PARENT}-{flags}");
        let header = [("traceparent", said.as_str())];
        client.post_with("/v1/recv", &header, &receive("jobs", 1, 30_000)).await;
    }
    // Whoever calls, and be it without a capability, does not say how large a span is.
    let said = format!("00-{TRACE}-{PARENT}-01");
    let state = format!("a={}", "x".repeat(600));
    let header = [("traceparent", said.as_str()), ("tracestate", state.as_str())];
    let method = "M".repeat(10_000);
    served.connection().await.call(&method, "/v1/send", &header, b"").await;
    stop(traces).await.unwrap();
    let spans = collector.0.lock().clone();
    assert_eq!(spans.len(), 2, "those of callers who trace");
    assert_eq!((&*spans[1].0.name, &*spans[1].0.trace_state), ("other /v1/send", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_does_not_answer_holds_nobody_up() {
    // It takes connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let traces = Traces::start(&format!("http://{}", listener.local_addr().unwrap()), 100).unwrap();
    let served = Rig::new().traced(&traces).start().await;
    let mut client = served.client().await;
    let started = Instant::now();
    // More than are kept for it.
    for number in 0..3000 {
        client.send("jobs", number.to_string()).await;
    }
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    let started = Instant::now();
    assert!(stop(traces).await.is_err(), "nobody took them, and that is said");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[tokio::test]
async fn what_is_no_address_is_refused() {
    for endpoint in ["http://", "no spaces"] {
        let refused = Traces::start(endpoint, 100).expect_err(endpoint);
        assert_eq!(refused.field(), Some("otlp_endpoint"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_is_told_of_in_the_end() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let traces = Traces::start(&format!("http://{free}"), 100).unwrap();
    let served = Rig::new().traced(&traces).start().await;
    served.client().await.send("jobs", "one").await;
    assert!(stop(traces).await.is_err(), "nobody took it");
}

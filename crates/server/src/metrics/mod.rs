//! What the service counts and measures, for Prometheus. Invariant: the number of series is
//! bounded, whatever clients call their mailboxes.

mod figures;
mod reorder;
mod route;
mod survey;

use std::sync::Arc;
use std::time::Duration;

use mailbox::ErrorKind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub(crate) use figures::Own;
pub(crate) use reorder::Reorder;
pub(crate) use route::{is_known, op_of, route_of};
pub(crate) use survey::Survey;

/// Bounds of the histograms of latency, in seconds: 0.1 ms to 10 s.
const BUCKETS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Http {
    route: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OpLabel {
    op: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    http: Family<Http, Counter>,
    rejected: Family<Reason, Counter>,
    auth_failures: Family<OpLabel, Counter>,
    frames: Frames,
    pub(crate) enqueue: Latency,
    pub(crate) dequeue: Latency,
    pub(crate) ack: Latency,
    cap_cache: Gauge,
    handed_out: Gauge,
    connections: Gauge,
    pub(crate) reorder: Arc<Reorder>,
    pub(crate) survey: Arc<Survey>,
}

/// Frames of OAP/1 that have come or gone. Each has its counter at hand: there are many.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) hello: Counter,
    pub(crate) request: Counter,
    pub(crate) response: Counter,
    pub(crate) event: Counter,
    pub(crate) malformed: Counter,
}

impl Frames {
    fn of(family: &Family<KindLabel, Counter>) -> Self {
        let of = |kind| family.get_or_create(&KindLabel { kind }).clone();
        Self {
            hello: of("hello"),
            request: of("request"),
            response: of("response"),
            event: of("event"),
            malformed: of("malformed"),
        }
    }
}

/// A histogram of how long something took.
#[derive(Debug, Clone)]
pub(crate) struct Latency(Histogram);

impl Latency {
    fn new() -> Self {
        Self(Histogram::new(BUCKETS))
    }

    pub(crate) fn observe(&self, took: Duration) {
        self.0.observe(took.as_secs_f64());
    }

    /// So many calls took this long, together.
    pub(crate) fn observe_each(&self, calls: usize, took: Duration) {
        (0..calls).for_each(|_| self.observe(took));
    }
}

impl Metrics {
    pub(crate) fn new(profile: &'static str, shards: u32) -> Self {
        let mut registry = Registry::default();
        let (http, rejected) = (Family::default(), Family::default());
        let auth_failures: Family<OpLabel, Counter> = Family::default();
        let oap_frames: Family<KindLabel, Counter> = Family::default();
        let frames = Frames::of(&oap_frames);
        let (enqueue, dequeue, ack) = (Latency::new(), Latency::new(), Latency::new());
        let (cap_cache, handed_out) = (Gauge::default(), Gauge::default());
        let connections = Gauge::default();
        let (reorder, survey) = (Arc::new(Reorder::new(shards)), Arc::new(Survey::new(profile)));
        registry.register("http_requests", "Requests answered", http.clone());
        registry.register("rejected", "Calls and messages refused", rejected.clone());
        let help = "Calls refused for their capability";
        registry.register("auth_failures", help, auth_failures.clone());
        registry.register("oap_frames", "Frames of OAP/1", oap_frames);
        let help = "Sends, from request to durable";
        registry.register("enqueue_latency_seconds", help, enqueue.0.clone());
        let help = "Receives that did not wait and got something";
        registry.register("dequeue_latency_seconds", help, dequeue.0.clone());
        let help = "Settling, from request to durable";
        registry.register("ack_latency_seconds", help, ack.0.clone());
        let help = "Capabilities believed without verifying them again";
        registry.register("cap_cache_entries", help, cap_cache.clone());
        let help = "Deliveries that went out from here and are not settled";
        registry.register("handed_out", help, handed_out.clone());
        registry.register("connections", "Connections that are open", connections.clone());
        let build = Info::new(Build { version: env!("CARGO_PKG_VERSION") });
        registry.register("build", "Which version this is", build);
        registry.register_collector(Box::new(Arc::clone(&reorder)));
        registry.register_collector(Box::new(Arc::clone(&survey)));
        Self {
            registry,
            http,
            rejected,
            auth_failures,
            frames,
            enqueue,
            dequeue,
            ack,
            cap_cache,
            handed_out,
            connections,
            reorder,
            survey,
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, route: &'static str, method: &http::Method, status: u16) {
        let method = known_method(method);
        self.http.get_or_create(&Http { route, method, status }).inc();
        if matches!(status, 401 | 403) {
            self.auth_failures.get_or_create(&OpLabel { op: op_of(route) }).inc();
        }
    }

    /// A call that needs this op has failed, in a protocol that has no routes.
    pub(crate) fn failed(&self, op: &'static str, kind: ErrorKind) {
        self.refused(kind);
        if matches!(kind, ErrorKind::Unauthorized | ErrorKind::Forbidden) {
            self.auth_failures.get_or_create(&OpLabel { op }).inc();
        }
    }

    /// Something was compressed too well to be inflated.
    pub(crate) fn ratio_capped(&self) {
        self.rejected.get_or_create(&Reason { reason: "ratio_cap" }).inc();
    }

    /// So many frames have come or gone.
    pub(crate) const fn frames(&self) -> &Frames {
        &self.frames
    }

    /// A call, or a message of a batch, was refused.
    pub(crate) fn refused(&self, kind: ErrorKind) {
        let reason = match kind {
            ErrorKind::Unauthorized => "unauth",
            ErrorKind::Forbidden => "scope",
            ErrorKind::TooLarge => "oversize",
            ErrorKind::MailboxFull | ErrorKind::Saturated => "saturated",
            ErrorKind::Integrity => "integrity",
            ErrorKind::Duplicate => "duplicate",
            ErrorKind::InvalidParameter
            | ErrorKind::Serialization
            | ErrorKind::MailboxResolution
            | ErrorKind::ReplyNotAvailable
            | ErrorKind::Unsupported => "schema",
            // Not refused: it is not there, or something is broken.
            _ => return,
        };
        self.rejected.get_or_create(&Reason { reason }).inc();
    }

    /// Everything as text, after the survey of the store and this were brought up to date.
    pub(crate) fn text(&self, own: Own) -> String {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.cap_cache.set(count(own.cached));
        self.handed_out.set(count(own.handed_out));
        self.connections.set(count(own.connections));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("text can be written to memory");
        text
    }
}

/// One of a few words, whatever a client says.
pub(crate) fn known_method(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

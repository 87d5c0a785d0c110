//! Traces: one span for each call, for a collector that speaks OTLP. Invariant: spans hold names,
//! ids and codes, never what is in a message or a capability; if nobody collects, none is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mailbox::{Error, ErrorKind, Name, Result};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

/// How long a collector has to take some spans.
const EXPORT_WITHIN: Duration = Duration::from_secs(5);
/// Longest state of other tracers that is kept: whoever calls can say anything.
const TRACESTATE_LEN: usize = 512;
/// Most messages whose senders' spans one receive is linked with.
const LINKS: u32 = 64;

/// Where spans of calls go.
#[derive(Debug, Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// Sends spans to a collector, by OTLP over gRPC: of so many calls in a hundred, or of those
    /// that the caller's own trace says. What a slow or absent collector does not take is dropped,
    /// and calls do not wait for it.
    ///
    /// # Errors
    /// `InvalidParameter` if there is no such address.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn start(endpoint: &str, percent: u32) -> Result<Self> {
        let mut exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_WITHIN);
        if endpoint.starts_with("https:") {
            // Those of the machine; by itself it would trust nobody.
            exporter = exporter.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
        }
        let exporter = exporter.build().map_err(|error| {
            let message = format!("cannot send traces to {endpoint:?}: {error}");
            Error::new(ErrorKind::InvalidParameter, message).with_field("otlp_endpoint")
        })?;
        let sampler = Sampler::TraceIdRatioBased(f64::from(percent) / 100.0);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_max_links_per_span(LINKS)
            .with_resource(resource())
            .build();
        let tracer = provider.tracer("mailbox");
        Ok(Self { provider, tracer })
    }

    /// Sends what is left, and ends. It blocks, for a few seconds at most.
    ///
    /// # Errors
    /// `Connection` if the collector did not take it.
    pub fn stop(&self) -> Result<()> {
        // Ending alone would not say whether they were taken.
        let flushed = self.provider.force_flush();
        let patience = if flushed.is_ok() { EXPORT_WITHIN } else { Duration::ZERO };
        let ended = self.provider.shutdown_with_timeout(patience);
        flushed.and(ended).map_err(|error| {
            Error::new(ErrorKind::Connection, "the last traces were not taken").with_source(error)
        })
    }

    /// A call begins; in the caller's trace, if it says one.
    pub(crate) fn begin(&self, call: Call<'_>) -> Trace {
        let parent =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &call.parent);
        let span = self
            .tracer
            .span_builder(call.name)
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new("messaging.system", "mailbox"),
                KeyValue::new("mailbox.corr_id", call.corr_id.to_owned()),
            ])
            .start_with_context(&self.tracer, &parent);
        let context = parent.with_span(span);
        Trace(Some(Arc::new(Traced { context, is_named: AtomicBool::default() })))
    }
}

/// What spans say about this process: what the environment says, as with other programs.
fn resource() -> Resource {
    const NAME: Key = Key::from_static_str("service.name");

    let said = Resource::builder().build();
    match said.get(&NAME) {
        Some(name) if !name.as_str().starts_with("unknown_service") => said,
        _ => Resource::builder().with_service_name("mailbox").build(),
    }
}

/// A call that begins.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) name: String,
    pub(crate) corr_id: &'a str,
    pub(crate) parent: Parent<'a>,
}

/// What somebody says about a trace.
#[derive(Debug)]
pub(crate) struct Parent<'a> {
    pub(crate) traceparent: Option<&'a str>,
    pub(crate) tracestate: Option<&'a str>,
}

impl Extractor for Parent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.traceparent,
            "tracestate" => self.tracestate.filter(|text| text.len() <= TRACESTATE_LEN),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// The span of one call; nothing if nobody collects. It ends when it was answered, or dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Option<Arc<Traced>>);

#[derive(Debug)]
struct Traced {
    context: Context,
    /// A call about many mailboxes names the first.
    is_named: AtomicBool,
}

impl Trace {
    fn recorded(&self) -> Option<&Traced> {
        self.0.as_deref().filter(|traced| traced.context.span().is_recording())
    }

    /// What it does, to which mailbox.
    pub(crate) fn about(&self, op: &'static str, mailbox: &Name) {
        let Some(traced) = self.recorded() else { return };
        if !traced.is_named.swap(true, Ordering::Relaxed) {
            traced.context.span().set_attributes([
                KeyValue::new("messaging.operation.name", op),
                KeyValue::new("messaging.destination.name", mailbox.as_str().to_owned()),
            ]);
        }
    }

    /// So many messages were received, and these are the traces of their senders.
    pub(crate) fn received<'a>(
        &self,
        count: usize,
        traceparents: impl Iterator<Item = Option<&'a str>>,
    ) {
        let Some(traced) = self.recorded() else { return };
        let (span, propagator) = (traced.context.span(), TraceContextPropagator::new());
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        span.set_attribute(KeyValue::new("messaging.batch.message_count", count));
        for traceparent in traceparents.flatten().take(LINKS as usize) {
            let sent = Parent { traceparent: Some(traceparent), tracestate: None };
            let sent = propagator.extract_with_context(&Context::new(), &sent);
            // What a sender says need not be the name of a trace.
            if sent.span().span_context().is_valid() {
                span.add_link(sent.span().span_context().clone(), Vec::new());
            }
        }
    }

    /// It was answered.
    pub(crate) fn end(&self, status: u16, failed: Option<ErrorKind>) {
        let Some(traced) = self.recorded() else { return };
        let span = traced.context.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if let Some(kind) = failed {
            span.set_attribute(KeyValue::new("error.type", kind.as_str()));
        }
        // Refusals are the caller's errors, and say so by their code.
        if status >= 500 {
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

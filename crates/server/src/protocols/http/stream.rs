//! A receive that goes on, as lines of JSON.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use mailbox_wire::capability::Op;
use mailbox_wire::json::Envelope;
use mailbox_wire::payload::wiped;

use super::outgoing::{InBody, Paced};
use crate::calls::{Next, Stream};
use crate::service::Service;

const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// The answer that goes on.
pub(crate) fn response(service: &Arc<Service>, stream: Stream, corr_id: &Arc<str>) -> Response {
    let (in_body, service, corr_id) = (InBody::default(), Arc::clone(service), Arc::clone(corr_id));
    let given = in_body.clone();
    let lines = unfold(Some(stream), move |stream| {
        let (given, service, corr_id) = (given.clone(), Arc::clone(&service), Arc::clone(&corr_id));
        async move { next_lines(&service, stream?, &given, &corr_id).await }
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(CONTENT_TYPE, NDJSON);
    response.extensions_mut().insert(in_body);
    response.extensions_mut().insert(Paced);
    response
}

type Lines = Option<(Result<Bytes, Infallible>, Option<Stream>)>;

async fn next_lines(
    service: &Service,
    mut stream: Stream,
    in_body: &InBody,
    corr_id: &str,
) -> Lines {
    let lines = match stream.next().await {
        Ok(Next::Quiet) => Bytes::from_static(b"\n"),
        Ok(Next::Messages(envelopes, hand_over)) => {
            in_body.add(hand_over);
            written(envelopes)
        }
        // Says why, and ends. How it began was counted long ago.
        Err(failure) => {
            service.metrics.failed(Op::Receive.as_str(), failure.error.kind());
            let problem = failure.problem(corr_id);
            let mut line = serde_json::to_vec(&problem).unwrap_or_default();
            line.push(b'\n');
            return Some((Ok(line.into()), None));
        }
    };
    Some((Ok(lines), Some(stream)))
}

fn written(envelopes: Vec<Envelope>) -> Bytes {
    // Room for all of it at once: what is copied when it grows would not be wiped.
    let room = envelopes.iter().map(Envelope::json_len).sum();
    let mut lines = Vec::with_capacity(room);
    for envelope in envelopes {
        envelope.append_json(&mut lines);
        lines.push(b'\n');
    }
    wiped(lines)
}

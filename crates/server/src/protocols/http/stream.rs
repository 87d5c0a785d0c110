//! A receive that goes on, as lines of JSON.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use mailbox_wire::json::{Envelope, ReceiveRequest};
use mailbox_wire::payload::wiped;

use super::answer;
use super::exchange::Exchange;
use crate::calls::{Next, Stream};
use crate::failure::Answer;
use crate::listen::Peer;

const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Messages in flight on a stream whose client does not say how many it can take.
const IN_FLIGHT: u32 = 16;

/// The answer that goes on.
pub(crate) fn response(exchange: Exchange, question: ReceiveRequest) -> Answer<Response> {
    let Exchange { service, caller, peer, .. } = exchange;
    let ReceiveRequest { topic, visibility_ms, max_messages, max_bytes, wait_ms } = question;
    if wait_ms.is_some() {
        let error = mailbox::Error::invalid("wait_ms", "given", "nothing: a stream always waits");
        return Err(error.into());
    }
    let max_messages = max_messages.unwrap_or(IN_FLIGHT.min(service.settings().max_messages));
    let asked = service.asked(&topic, visibility_ms, Some(max_messages), max_bytes)?;
    let corr_id = Arc::clone(&caller.corr_id);
    let stream = Stream::open(&service, caller, asked)?;
    let lines = unfold(Some(stream), move |stream| {
        let (peer, corr_id) = (Arc::clone(&peer), Arc::clone(&corr_id));
        async move { next_lines(stream?, &peer, &corr_id).await }
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(CONTENT_TYPE, NDJSON);
    Ok(response)
}

type Lines = Option<(Result<Bytes, Infallible>, Option<Stream>)>;

async fn next_lines(mut stream: Stream, peer: &Peer, corr_id: &str) -> Lines {
    let lines = match stream.next().await {
        Ok(Next::Quiet) => Bytes::from_static(b"\n"),
        Ok(Next::Messages(envelopes, hand_over)) => {
            let lines = written(envelopes);
            peer.on_its_way(hand_over);
            lines
        }
        // Says why, and ends.
        Err(failure) => {
            let problem = answer::problem(&failure, corr_id);
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

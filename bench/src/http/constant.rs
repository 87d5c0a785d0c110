//! The limit: the same server stack, which reads every request and answers a constant.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::post;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower_service::Service;

use super::client::PAYLOAD_B64;

/// What a call is answered.
#[derive(Debug, Clone)]
struct Constant(Bytes);

/// Answers until the process ends.
pub(super) async fn serve(listener: TcpListener) {
    let sent = r#"{"msg_id":"01JA2ZQ4V6Z0Y8X7W5T3R1P9N8","duplicate":false}"#;
    let router = Router::new()
        .route("/v1/send", constant(sent.to_owned()))
        .route("/v1/send/batch", constant(list("results", sent)))
        .route("/v1/recv", constant(list_of(1)))
        .route("/v1/recv10", constant(list_of(10)))
        .route("/v1/ack/{id}", constant(r#"{"ok":true}"#.to_owned()))
        .route("/v1/settle/batch", constant(list("results", r#"{"ok":true}"#)));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let mut router = router.clone();
                async move {
                    let Ok(response) = router.call(request.map(Body::new)).await;
                    Ok::<_, Infallible>(response)
                }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

fn constant(text: String) -> axum::routing::MethodRouter {
    async fn answer(State(Constant(text)): State<Constant>, _body: Bytes) -> Response {
        let mut response = Response::new(Body::from(text));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }

    post(answer).with_state(Constant(text.into()))
}

fn list(name: &str, item: &str) -> String {
    format!("{{\"{name}\":[{}]}}", [item; 10].join(","))
}

/// As many envelopes, as long as ours are.
fn list_of(count: usize) -> String {
    let hash = "7".repeat(64);
    let envelope = format!(
        "{{\"msg_id\":\"01JA2ZQ4V6Z0Y8X7W5T3R1P9N8\",\"topic\":\"jobs\",\
         \"ts\":\"2025-10-12T18:02:41.000Z\",\"idem_key\":null,\"payload_hash\":\"b3:{hash}\",\
         \"attrs\":{{}},\"corr_id\":\"0190163d-8694-739b-aea5-966c26f8ad91\",\"shard\":4,\
         \"attempt\":1,\"hash_chain\":\"b3:{hash}\",\"sig\":null,\
         \"payload_b64\":\"{}\",\"receipt_handle\":\"jobs/{}\",\
         \"visible_until_ms\":1735689600000}}",
        &**PAYLOAD_B64,
        "a".repeat(72),
    );
    format!("{{\"messages\":[{}]}}", vec![envelope.as_str(); count].join(","))
}

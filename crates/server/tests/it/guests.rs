//! Those who ask without a capability: how the service is, and what it can be asked.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use prost::Message;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::rig::{Call, H2Client, PATIENCE, Rig, Served, framed, until};

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Asks for the file that describes the service.
#[derive(Clone, PartialEq, Message)]
struct FileContaining {
    #[prost(string, tag = "4")]
    symbol: String,
}

fn reflection() -> Bytes {
    framed(&FileContaining { symbol: "mailbox.v1.Mailbox".to_owned() })
}

async fn watch(client: &H2Client, service: &str) -> Call {
    client.call(WATCH, "", framed(&HealthCheckRequest { service: service.to_owned() })).await
}

async fn said(call: &mut Call) -> Option<ServingStatus> {
    let response = call.message::<HealthCheckResponse>().await.unwrap();
    response.map(|it| it.status())
}

/// A hundred streams of one connection with a window of one byte, and as many connections as one
/// likes: that was memory for everybody.
#[tokio::test]
async fn guests_have_few_places_but_all_hear_how_the_service_is() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_secs(60)).start().await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let client = served.h2_client(1).await;
        let mut calls = Vec::new();
        for _ in 0..8 {
            let call = client.begin(REFLECTION, reflection()).await;
            assert!(!call.answer.headers().contains_key("grpc-status"));
            calls.push(call);
        }
        for path in [REFLECTION, WATCH] {
            let (code, problem) = client.begin(path, Bytes::new()).await.status().await;
            assert_eq!(code, Code::ResourceExhausted, "{path}");
            let problem = problem.unwrap();
            assert_eq!(problem.code, "E_SATURATED");
            assert!(problem.retry_after_ms.is_some(), "{problem:?}");
        }
        let refused = client.get("/healthz", "").await;
        assert_eq!(refused.answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.answer.headers().contains_key("retry-after"));
        clients.push((client, calls));
    }
    let late = served.h2_client(1 << 16).await;
    let (code, _) = late.begin(REFLECTION, reflection()).await.status().await;
    assert_eq!(code, Code::ResourceExhausted, "there are none for anybody");
    assert_eq!(late.get("/readyz", "").await.answer.status(), StatusCode::OK);
    assert_eq!(said(&mut watch(&late, "").await).await, Some(ServingStatus::Serving));
    drop(clients);
    until("there are places again", async || {
        let call = late.begin(REFLECTION, reflection()).await;
        !call.answer.headers().contains_key("grpc-status")
    })
    .await;
}

#[tokio::test]
async fn whoever_asks_what_can_be_asked_is_told() {
    let served = Rig::new().start().await;
    let client = served.h2_client(1 << 16).await;
    let mut call = client.call(REFLECTION, "", reflection()).await;
    let answer = call.message::<Vec<u8>>().await.unwrap();
    assert!(answer.is_some());
    assert_eq!(call.status().await.0, Code::Ok);
}

/// An open stream was cut off when nothing was said for as long as a connection may be idle.
#[tokio::test]
async fn whoever_watches_is_not_idle_and_hears_now_and_then_that_all_is_well() {
    let served = Rig::new()
        .with(|config| {
            let short = Duration::from_millis(100);
            (config.timeouts.idle, config.timeouts.heartbeat) = (short, 5 * short);
        })
        .start()
        .await;
    let client = served.h2_client(1 << 16).await;
    let mut watching = watch(&client, "mailbox.v1.Mailbox").await;
    for _ in 0..3 {
        assert_eq!(said(&mut watching).await, Some(ServingStatus::Serving));
    }
    drop(watching);
    until("the connection is idle, and cut off", async || client.is_over()).await;
}

/// What it began with was true when somebody had looked last.
#[tokio::test]
async fn whoever_begins_to_watch_hears_how_it_is_now() {
    let served = Rig::new().with(|config| config.limits.requests = 0).start().await;
    let client = served.h2_client(1 << 16).await;
    let mut watching = watch(&client, "").await;
    assert_eq!(said(&mut watching).await, Some(ServingStatus::NotServing));
    let mut unknown = watch(&client, "something").await;
    assert_eq!(said(&mut unknown).await, Some(ServingStatus::ServiceUnknown));
}

async fn ends(served: &mut Served) {
    served.stop.cancel();
    let ended = tokio::time::timeout(PATIENCE / 4, &mut served.running);
    ended.await.expect("over long before the drain time").unwrap();
}

/// One who watched kept the service from ending until the drain time was over.
#[tokio::test]
async fn guests_do_not_hold_up_the_end() {
    let rig = || Rig::new().with(|config| config.timeouts.drain = 2 * PATIENCE);
    let mut served = rig().start().await;
    let client = served.h2_client(1 << 16).await;
    let mut watching = watch(&client, "").await;
    assert_eq!(said(&mut watching).await, Some(ServingStatus::Serving));
    ends(&mut served).await;
    assert_eq!(said(&mut watching).await, Some(ServingStatus::NotServing));
    assert_eq!(said(&mut watching).await, None);
    let (code, problem) = watching.status().await;
    assert_eq!(code, Code::Unavailable);
    assert_eq!(problem.unwrap().reason.as_deref(), Some("stopping"));

    let mut served = rig().start().await;
    let client = served.h2_client(1 << 16).await;
    let mut unknown = watch(&client, "something").await;
    assert_eq!(said(&mut unknown).await, Some(ServingStatus::ServiceUnknown));
    let mut asking = client.begin(REFLECTION, reflection()).await;
    assert!(asking.piece().await.unwrap().is_some());
    let silent = client.begin(REFLECTION, Bytes::new()).await;
    ends(&mut served).await;
    assert_eq!(unknown.status().await.0, Code::Unavailable);
    assert_eq!(asking.status().await.0, Code::Unavailable);
    drop(silent);
}

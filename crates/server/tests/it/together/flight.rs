//! In which order what comes together is done, how much may come, and what is counted.

use bytes::BytesMut;
use mailbox::backends::journal::JournalConfig;
use mailbox_wire::call::Request;
use mailbox_wire::json::{Envelope, ReceiveRequest, SendRequest};
use mailbox_wire::oap::{Frame, MAX_INFLIGHT};
use serde_json::Value;

use super::{ack, all, asked, codes, frames, good, messages, pair, together, told};
use crate::rig::{OapClient, Rig, figure, journal, receive, send};

/// To one mailbox and to several, which ends what is done together and begins it anew.
#[tokio::test]
async fn what_is_sent_is_there_in_the_order_in_which_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let store = journal(&dir.path().join("j"), JournalConfig::default()).await;
    for rig in [Rig::new(), Rig::on(store)] {
        let served = rig.start().await;
        let mut client = served.oap_client().await;
        sends_are_in_order(&mut client, &["jobs"]).await;
        sends_are_in_order(&mut client, &["jobs", "jobs", "other", "other", "jobs", "third"]).await;
        sends_are_in_order(&mut client, &["jobs", "other"]).await;
    }
}

async fn sends_are_in_order(client: &mut OapClient, topics: &[&str]) {
    for round in 0..3 {
        let of = |number: usize| (topics[number % topics.len()], format!("message {number}"));
        let send = |number: usize| Request::Send(send(of(number).0, of(number).1));
        let requests: Vec<Request> = (0..MAX_INFLIGHT).map(send).collect();
        let answers = together(client, &frames(&requests)).await;
        assert_eq!(codes(&answers), [200; MAX_INFLIGHT], "in round {round}");
        for topic in ["jobs", "other", "third"] {
            let expected: Vec<(String, &Value)> = (0..MAX_INFLIGHT)
                .filter(|number| of(*number).0 == topic)
                .map(|number| (of(number).1, &answers[number].1["msg_id"]))
                .collect();
            let found = messages(client, topic).await;
            assert_eq!(found.len(), expected.len(), "{topic}, in round {round}");
            for (envelope, (payload, id)) in found.iter().zip(expected) {
                assert_eq!(envelope.payload_b64.0, payload, "{topic}, in round {round}");
                assert_eq!(*id, envelope.msg_id, "each has the id of its own");
            }
        }
    }
}

#[tokio::test]
async fn a_receive_behind_sends_gets_them_and_one_before_them_does_not() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let question =
        |wait_ms| Request::Receive(ReceiveRequest { wait_ms, ..receive("jobs", 10, 30_000) });
    for round in 0..10 {
        let sends = |from: usize| (from..from + 5).map(good);
        let mut requests = vec![question(None)];
        requests.extend(sends(0));
        requests.push(question(None));
        requests.extend(sends(5));
        requests.push(question(Some(20_000)));
        // In one language: in the other, what is text is not in base64.
        let frames: Vec<Frame> =
            requests.into_iter().zip(0..).map(|(it, at)| asked(3 * at + 1, it)).collect();
        let answers = together(&mut client, &frames).await;
        let received = |place: usize| {
            let messages = answers[place].1["messages"].as_array().unwrap().clone();
            let payload = |it: &Value| serde_json::from_value::<Envelope>(it.clone()).unwrap();
            messages.iter().map(|it| payload(it).payload_b64.0).collect::<Vec<_>>()
        };
        let expected =
            |from: usize| (from..from + 5).map(|it| format!("message {it}")).collect::<Vec<_>>();
        assert!(received(0).is_empty(), "in round {round}");
        assert_eq!(received(6), expected(0), "in round {round}");
        assert_eq!(received(12), expected(5), "in round {round}");
    }
}

#[tokio::test]
async fn more_than_may_be_in_flight_are_refused_one_by_one() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    // As many wait as may, and five more would.
    let wait =
        Request::Receive(ReceiveRequest { wait_ms: Some(60_000), ..receive("quiet", 1, 30_000) });
    let most = MAX_INFLIGHT as u64;
    let waiting = (1..=most + 5).map(|corr_id| asked(corr_id, wait.clone()));
    let sends = (most + 6..most + 26).map(|corr_id| asked(corr_id, good(corr_id as usize)));
    let frames: Vec<Frame> = waiting.chain(sends).collect();
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    client.raw(&bytes).await;
    let mut refused = Vec::new();
    while refused.len() < 25 {
        let answer = client.frame().await;
        let (code, problem) = told(&answer);
        assert_eq!((code, &problem["code"]), (429, &"E_SATURATED".into()), "{problem}");
        assert!(problem["retry_after_ms"].is_number(), "{problem}");
        refused.push(answer.corr_id);
    }
    refused.sort_unstable();
    assert_eq!(refused, (most + 1..most + 26).collect::<Vec<_>>());
    assert!(all(&served, "jobs").await.is_empty(), "nothing of it was done");
    // Those that wait still do.
    let mut other = served.oap_client().await;
    for number in 0..MAX_INFLIGHT {
        let message = Request::Send(send("quiet", number.to_string()));
        other.ask(message).await.unwrap();
    }
    let mut answered = Vec::new();
    while answered.len() < MAX_INFLIGHT {
        let answer = client.frame().await;
        assert_eq!(answer.code, 200);
        answered.push(answer.corr_id);
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=most).collect::<Vec<_>>());
}

/// Nobody has to know how much the service reads at a time: of what is too much, what is refused
/// says so, and what is not is done, in order.
#[tokio::test]
async fn of_too_many_sends_at_once_those_are_done_that_are_not_refused() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let requests: Vec<Request> = (0..3 * MAX_INFLIGHT).map(good).collect();
    let answers = together(&mut client, &frames(&requests)).await;
    let mut expected = Vec::new();
    for (number, (code, value)) in answers.iter().enumerate() {
        match code {
            200 => expected.push(format!("message {number}")),
            429 => assert_eq!(value["code"], "E_SATURATED"),
            _ => panic!("{code}: {value}"),
        }
    }
    assert!(expected.len() >= MAX_INFLIGHT, "{}", expected.len());
    assert_eq!(all(&served, "jobs").await, expected);
}

/// What is counted is the number of requests, and not how they came.
#[tokio::test]
async fn they_are_counted_one_by_one() {
    const COUNT: usize = 40;
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let mut http = served.client().await;
    let mut counted = async |requests: &[Request], client: &mut OapClient| {
        let metrics = [
            ("oap_frames_total", "kind=\"request\""),
            ("oap_frames_total", "kind=\"response\""),
            ("enqueue_latency_seconds_count", ""),
            ("ack_latency_seconds_count", ""),
            ("rejected_total", "reason=\"schema\""),
        ];
        let before = http.get("/metrics").await.text();
        together(client, &frames(requests)).await;
        let after = http.get("/metrics").await.text();
        let value = |text: &str, (metric, label)| figure(text, metric, &[label]);
        metrics.map(|metric| (value(&after, metric) - value(&before, metric)) as usize)
    };
    let sends: Vec<Request> = (0..COUNT).map(good).collect();
    assert_eq!(counted(&sends, &mut client).await, [COUNT, COUNT, COUNT, 0, 0]);
    let held = messages(&mut client, "jobs").await;
    let acks: Vec<Request> = held.into_iter().map(|it| ack(it.receipt_handle.unwrap())).collect();
    assert_eq!(counted(&acks, &mut client).await, [COUNT, COUNT, 0, COUNT, 0]);
    let reserved = SendRequest { attrs: pair("mailbox.sig", "x"), ..send("jobs", "bad") };
    let bad: Vec<Request> = (0..COUNT)
        .map(|at| if at % 4 == 3 { Request::Send(reserved.clone()) } else { good(at) })
        .collect();
    let (frames, good) = (COUNT, COUNT * 3 / 4);
    assert_eq!(counted(&bad, &mut client).await, [frames, frames, good, 0, COUNT - good]);
}

//! Points 3 and 8: a batch is one call, and one bad body in it harms none of the others.

use std::sync::Arc;

use futures_util::future::join_all;
use mailbox::backends::redis::RedisBackend;
use mailbox::{Backend, ErrorKind, Outgoing, ReceiveOptions, SendOptions, Settlement, Verdict};

use crate::redis::proxy::Proxy;
use crate::redis::python::Python;
use crate::redis::{Place, jobs, seconds, send, until};

/// As many as a call of a batch has here.
const TEN: u32 = 10;

#[tokio::test]
async fn point_3_a_body_that_cannot_be_decoded_strands_none_of_its_batch() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    for body in ["1", "NaN", "3"] {
        python.send(body);
    }
    // All or nothing, as the other side has it: one error for the batch, and all are held.
    let taken: Vec<_> = (0..3).map(|_| python.receive(seconds(0)).unwrap()).collect();
    let bodies: Result<Vec<u32>, _> =
        taken.into_iter().map(|taken| taken.body.unwrap().parse::<u32>()).collect();
    assert!(bodies.is_err());
    assert_eq!(place.scores("invisible").len(), 3, "two that are good are held by nobody");
    place.until_all_due().await;
    let options = ReceiveOptions::new().with_max_messages(TEN);
    let messages = place.jobs::<u32, ()>().receive_with(options).await.unwrap();
    let bodies: Vec<Result<u32, ErrorKind>> =
        messages.iter().map(|one| one.body().copied().map_err(|error| error.kind())).collect();
    assert_eq!(bodies, [Ok(1), Err(ErrorKind::Serialization), Ok(3)]);
    assert_eq!(&messages[1].payload().unwrap()[..], b"NaN");
    for message in &messages {
        match message.body() {
            Ok(_) => message.acknowledge().await.unwrap(),
            Err(error) => message.reject(error.to_string()).await.unwrap(),
        }
    }
    assert_eq!(place.scores("dead").len(), 1);
    assert_eq!(place.scores("invisible"), []);
}

#[tokio::test]
async fn point_8_a_batch_is_one_script() {
    let place = Place::new().await;
    let mailbox = place.jobs::<u32, ()>();
    let options = ReceiveOptions::new().with_max_messages(TEN);
    // Twice: at first the server does not know the scripts.
    for is_known in [false, true] {
        let before = place.scripts();
        let batch: Vec<(u32, SendOptions)> = (0..TEN).map(|n| (n, SendOptions::new())).collect();
        let sent = mailbox.send_batch(batch).await.unwrap();
        assert!(sent.iter().all(Result::is_ok));
        let after_send = place.scripts();
        let taken = mailbox.receive_with(options.clone()).await.unwrap();
        assert_eq!(taken.len(), 10);
        let after_receive = place.scripts();
        let settlement = |handle: &mailbox::ReceiptHandle| {
            let (receipt_handle, verdict) = (handle.clone(), Verdict::Acknowledge);
            Settlement { receipt_handle, verdict }
        };
        let batch = taken.iter().map(|message| settlement(message.receipt_handle())).collect();
        let settled = mailbox.settle_batch(batch).await.unwrap();
        assert!(settled.iter().all(Result::is_ok));
        let calls =
            [after_send - before, after_receive - after_send, place.scripts() - after_receive];
        if is_known {
            assert_eq!(calls, [1, 1, 1]);
        }
    }
}

#[tokio::test]
async fn point_8_the_other_side_needs_a_script_a_message() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let before = place.scripts();
    for n in 0..TEN {
        python.send(&n.to_string());
    }
    assert_eq!(place.scripts() - before, u64::from(TEN), "what is counted is what it looks like");
}

#[tokio::test]
async fn point_8_sends_of_one_process_do_not_wait_for_each_other() {
    const SENDS: u32 = 100;
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend: Arc<RedisBackend> = RedisBackend::open(&proxy.url()).await.unwrap();
    send(&*backend, Outgoing::new("0".into())).await.unwrap();
    let before = proxy.scripts();
    proxy.hold();
    let sends = (0..SENDS).map(|n| {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { send(&*backend, Outgoing::new(n.to_string().into())).await })
    });
    let sends: Vec<_> = sends.collect();
    // All are on their way before the first is answered.
    until("all are asked for", || async { proxy.scripts() - before == SENDS }).await;
    proxy.let_go();
    for sent in join_all(sends).await {
        sent.unwrap().unwrap();
    }
    assert_eq!(proxy.connections(), 1);
    assert_eq!(place.backend.stats(&jobs()).await.unwrap().ready, u64::from(SENDS) + 1);
    let own = |line: &String| line.contains("cmd=eval");
    assert_eq!(place.clients().iter().filter(|line| own(line)).count(), 2, "one each backend");
}

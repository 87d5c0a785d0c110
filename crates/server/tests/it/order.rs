//! Order, and what survives a restart of the service.

use std::sync::Arc;

use mailbox::backends::journal::JournalConfig;
use mailbox_wire::json::Reprocessed;

use crate::rig::{Rig, journal, message, send};

const MESSAGES: usize = 1000;

#[tokio::test]
async fn a_thousand_messages_of_one_shard_come_in_the_order_they_were_sent() {
    let served = Rig::new().start().await;
    let (mut producer, mut consumer) = (served.client().await, served.client().await);
    let producing = tokio::spawn(async move {
        let mut sent = 0;
        while sent < MESSAGES {
            // Alone and in batches.
            if sent % 50 == 0 {
                let batch = (sent..sent + 25).map(|number| message(number.to_string()));
                producer.send_batch("jobs", batch.collect()).await;
                sent += 25;
            } else {
                producer.send("jobs", sent.to_string()).await;
                sent += 1;
            }
        }
    });
    let (mut next, mut shard) = (0, None);
    while next < MESSAGES {
        for message in consumer.receive("jobs", 7, 30_000).await {
            assert_eq!(message.payload_b64.0, next.to_string());
            assert_eq!(*shard.get_or_insert(message.shard), message.shard);
            assert_eq!(consumer.ack_it(&message).await.status, 200);
            next += 1;
        }
    }
    producing.await.unwrap();
    assert!(consumer.receive("jobs", 1, 30_000).await.is_empty());
}

#[tokio::test]
async fn dead_letters_and_messages_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let (dead, live) = {
        let store = journal(&path, JournalConfig::default()).await;
        let served = Rig::on(Arc::clone(&store)).start().await;
        let mut client = served.client().await;
        let dead = client.send("jobs", "poison").await.msg_id;
        let poison = client.receive_one("jobs", 30_000).await;
        assert_eq!(client.nack(&poison, true).await.status, 200);
        let live = client.send("jobs", "fine").await.msg_id;
        store.close().await.unwrap();
        (dead, live)
    };
    let served = Rig::on(journal(&path, JournalConfig::default()).await).start().await;
    let mut client = served.client().await;
    let letters = client.dead("jobs").await.messages;
    assert_eq!(letters.len(), 1);
    let (letter, death) = (&letters[0], letters[0].death.as_ref().unwrap());
    assert_eq!((letter.envelope.msg_id.as_str(), letter.envelope.attempt), (dead.as_str(), 1));
    assert_eq!(
        (death.reason.as_str(), letter.last_error.as_deref()),
        ("rejected", Some("not today"))
    );
    assert!(letter.envelope.is_whole());
    // It comes back when somebody says so, and not before.
    assert_eq!(client.receive_one("jobs", 30_000).await.msg_id, live);
    assert!(client.receive("jobs", 1, 30_000).await.is_empty());
    let done: Reprocessed = client.reprocess("jobs").await.good();
    assert_eq!((done.reprocessed, done.remaining), (1, 0));
    assert_eq!(client.receive_one("jobs", 30_000).await.msg_id, dead);
}

#[tokio::test]
async fn a_delivery_of_the_last_run_can_be_settled_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let held = {
        let store = journal(&path, JournalConfig::default()).await;
        let served = Rig::on(Arc::clone(&store)).start().await;
        let mut client = served.client().await;
        client.try_send(&send("jobs", "one")).await;
        let held = client.receive_one("jobs", 600_000).await;
        store.close().await.unwrap();
        held
    };
    let served = Rig::on(journal(&path, JournalConfig::default()).await).start().await;
    let mut client = served.client().await;
    assert!(client.receive("jobs", 1, 30_000).await.is_empty(), "it is hidden still");
    // Which delivery was the last is not known any more: the handle says it.
    client.ack(&held.msg_id, None).await.bad(404, "E_RECEIPT");
    assert_eq!(client.ack_it(&held).await.status, 200);
}

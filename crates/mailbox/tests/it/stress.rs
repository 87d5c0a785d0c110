//! Many producers and consumers at once, on real threads: nothing lost, nothing handed out twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mailbox::{Mailbox, ReceiveOptions};
use tokio::task::JoinSet;

const PRODUCERS: u64 = 8;
const CONSUMERS: u64 = 8;
const MESSAGES: u64 = 8 * 200_000;

/// Every producer sends its share of `MESSAGES`; gives all bodies that consumers got, with repeats.
async fn run(mailbox: Mailbox<u64>) -> Vec<u64> {
    let left = Arc::new(AtomicU64::new(MESSAGES));
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let mailbox = mailbox.clone();
        producers.spawn(async move {
            for body in (producer..MESSAGES).step_by(PRODUCERS as usize) {
                mailbox.send(body).await.unwrap();
                // In memory nothing makes a sender wait: let the others have their turn.
                if body % 64 == producer {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    let mut consumers = JoinSet::new();
    for consumer in 0..CONSUMERS {
        let (mailbox, left) = (mailbox.clone(), Arc::clone(&left));
        consumers.spawn(async move {
            let mut got = Vec::new();
            // Batches of different sizes, so that waking one waiter for many messages is tried too.
            let options = ReceiveOptions::new()
                .with_max_messages(1 + u32::try_from(consumer).unwrap() * 3)
                .with_wait(Duration::from_millis(100));
            while left.load(Ordering::Acquire) > 0 {
                for message in mailbox.receive_with(options.clone()).await.unwrap() {
                    assert_eq!(message.delivery_count(), 1);
                    got.push(*message.body().unwrap());
                    message.acknowledge().await.unwrap();
                    left.fetch_sub(1, Ordering::AcqRel);
                }
                tokio::task::yield_now().await;
            }
            got
        });
    }
    producers.join_all().await;
    consumers.join_all().await.concat()
}

async fn each_message_comes_to_one_consumer(mailbox: Mailbox<u64>) {
    let got = tokio::time::timeout(Duration::from_secs(300), run(mailbox.clone()))
        .await
        .expect("all messages are delivered in time");
    assert_eq!(got.len() as u64, MESSAGES, "delivered more than once");
    assert_eq!(got.iter().collect::<HashSet<_>>().len() as u64, MESSAGES, "lost");
    let stats = mailbox.stats().await.unwrap();
    assert_eq!((stats.live(), stats.dead, stats.waiters), (0, 0, 0));
    assert_eq!((stats.totals.sent, stats.totals.acknowledged), (MESSAGES, MESSAGES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_producers_and_eight_consumers_share_a_memory_mailbox() {
    each_message_comes_to_one_consumer(Mailbox::memory("stress").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_producers_and_eight_consumers_share_a_local_mailbox() {
    each_message_comes_to_one_consumer(Mailbox::local("stress").unwrap()).await;
}

/// A lease taken by a receive that nobody waits for any more would hide its message for an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_aborted_receives_strand_nothing() {
    const ROUNDS: u64 = 1_000;
    let mailbox: Mailbox<u64> = Mailbox::memory("aborted").unwrap();
    let options = ReceiveOptions::new()
        .with_visibility_timeout(Duration::from_secs(3_600))
        .with_wait(Duration::from_secs(3_600));
    let mut handed_over = 0;
    for body in 0..ROUNDS {
        let receive = tokio::spawn({
            let (mailbox, options) = (mailbox.clone(), options.clone());
            async move {
                let message = mailbox.receive_with(options).await.unwrap().remove(0);
                message.acknowledge().await
            }
        });
        let send = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { mailbox.send(body).await.unwrap() }
        });
        // Different numbers of turns, so that the abort meets the receive in every state; and now
        // and then none at all before the receive is done.
        match body % 7 {
            6 => {
                while !receive.is_finished() {
                    tokio::task::yield_now().await;
                }
            }
            turns => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
        }
        receive.abort();
        send.await.unwrap();
        if let Ok(acknowledged) = receive.await {
            acknowledged.unwrap();
            handed_over += 1;
        }
    }
    let stats = mailbox.stats().await.unwrap();
    assert_eq!(stats.invisible, 0, "a lease without a holder");
    assert_eq!(stats.ready + handed_over, ROUNDS);
    assert!(handed_over > 0 && stats.ready > 0, "the abort never met the receive half way");
    assert_eq!(stats.waiters, 0);
}

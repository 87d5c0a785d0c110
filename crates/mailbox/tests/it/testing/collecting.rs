use std::collections::BTreeMap;
use std::time::Duration;

use mailbox::testing::{CollectingMailbox, ManualClock};
use mailbox::{ErrorKind, Mailbox, ReceiveOptions, SendOptions};

use super::kind;

#[tokio::test]
async fn a_collecting_mailbox_gives_bodies_in_the_order_of_sending() {
    let collecting = CollectingMailbox::<u32>::new("all").unwrap();
    let delayed = SendOptions::new().with_delay(Duration::from_secs(60));
    collecting.send_with(1, delayed).await.unwrap();
    collecting.send(2).await.unwrap();
    let batch = vec![(3, SendOptions::new()), (4, SendOptions::new())];
    collecting.send_batch(batch).await.unwrap();
    assert_eq!(collecting.sent().unwrap(), [1, 2, 3, 4]);
    assert_eq!(collecting.sent_count(), 4);
}

#[tokio::test]
async fn everything_said_beside_the_body_is_collected() {
    let collecting = CollectingMailbox::<String, String>::new("all").unwrap();
    let options = SendOptions::new()
        .with_attribute("tenant", "7")
        .with_reply_to("client-1")
        .with_idempotency_key("k")
        .with_group("g")
        .with_delay(Duration::from_secs(5));
    let id = collecting.send_with("body".to_owned(), options).await.unwrap().id;
    let collected = collecting.collected().unwrap().remove(0);
    assert_eq!(collected.id, id);
    assert_eq!(collected.body, "body");
    assert_eq!(collected.attributes, BTreeMap::from([("tenant".to_owned(), "7".to_owned())]));
    assert_eq!(collected.reply_to.as_deref(), Some("client-1"));
    assert_eq!(collected.idempotency_key.as_deref(), Some("k"));
    assert_eq!(collected.group.as_deref(), Some("g"));
    assert_eq!(collected.delay, Duration::from_secs(5));
}

#[tokio::test]
async fn what_was_sent_is_remembered_after_it_is_received_and_purged() {
    let clock = ManualClock::new();
    let collecting = CollectingMailbox::<u32>::with_clock("all", clock.clock()).unwrap();
    collecting.send(1).await.unwrap();
    collecting.send(2).await.unwrap();
    let first = collecting.receive().await.unwrap().remove(0);
    assert_eq!(*first.body().unwrap(), 1);
    first.acknowledge().await.unwrap();
    assert_eq!(collecting.purge().await.unwrap(), 1);
    assert_eq!(collecting.approximate_count().await.unwrap(), 0);
    assert_eq!(collecting.sent().unwrap(), [1, 2]);
}

#[tokio::test]
async fn over_its_capacity_a_collecting_mailbox_is_full_until_it_forgets() {
    let collecting = CollectingMailbox::<u32>::new("all").unwrap().with_capacity(2);
    let batch = (1..=3).map(|body| (body, SendOptions::new())).collect();
    let results = collecting.send_batch(batch).await.unwrap();
    assert!(results[0].is_ok() && results[1].is_ok());
    assert_eq!(results[2].as_ref().unwrap_err().kind(), ErrorKind::MailboxFull);
    assert_eq!(kind(collecting.send(4).await), ErrorKind::MailboxFull);
    assert_eq!(collecting.approximate_count().await.unwrap(), 2);
    collecting.forget_sent();
    collecting.send(5).await.unwrap();
    assert_eq!(collecting.sent().unwrap(), [5]);
}

#[tokio::test]
async fn a_refused_send_is_not_remembered_and_takes_no_room() {
    let collecting = CollectingMailbox::<u32>::new("all").unwrap().with_capacity(1);
    let too_late = SendOptions::new().with_delay(Duration::from_secs(43_201));
    let refused = collecting.send_with(1, too_late).await;
    assert_eq!(kind(refused), ErrorKind::InvalidParameter);
    collecting.set_connection_error("down");
    assert_eq!(kind(collecting.send(2).await), ErrorKind::Connection);
    collecting.clear_connection_error();
    collecting.send(3).await.unwrap();
    assert_eq!(collecting.sent().unwrap(), [3]);
}

#[tokio::test]
async fn a_duplicate_is_remembered_once() {
    let collecting = CollectingMailbox::<u32>::new("all").unwrap();
    let keyed = || SendOptions::new().with_idempotency_key("k");
    let first = collecting.send_with(1, keyed()).await.unwrap();
    let second = collecting.send_with(1, keyed()).await.unwrap();
    assert!(second.duplicate && second.id == first.id);
    assert_eq!(collecting.sent().unwrap(), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senders_at_once_fill_it_to_its_capacity_and_no_further() {
    let collecting = CollectingMailbox::<u32>::new("all").unwrap().with_capacity(500);
    let senders: Vec<_> = (0..8)
        .map(|sender| {
            let mailbox = collecting.mailbox().clone();
            tokio::spawn(async move {
                let mut accepted = 0;
                for number in 0..100 {
                    accepted += u32::from(mailbox.send(sender * 100 + number).await.is_ok());
                }
                accepted
            })
        })
        .collect();
    let mut accepted = 0;
    for sender in senders {
        accepted += sender.await.unwrap();
    }
    assert_eq!(accepted, 500);
    assert_eq!(collecting.sent_count(), 500);
    assert_eq!(collecting.approximate_count().await.unwrap(), 500);
}

#[tokio::test]
async fn replies_to_a_collecting_mailbox_are_collected_wherever_the_request_went() {
    let replies = CollectingMailbox::<String>::new("replies").unwrap();
    let requests: [Mailbox<u32, String>; 3] = [
        Mailbox::memory("requests").unwrap(),
        Mailbox::local("requests").unwrap(),
        CollectingMailbox::new("requests").unwrap().mailbox().clone(),
    ];
    for mailbox in requests {
        let options = SendOptions::new().with_reply_to(replies.mailbox());
        mailbox.send_with(1, options).await.unwrap();
        let request = mailbox.receive().await.unwrap().remove(0);
        request.reply("answer".to_owned()).await.unwrap();
    }
    assert_eq!(replies.sent().unwrap(), ["answer"; 3]);
    let waiting = ReceiveOptions::new().with_max_messages(10);
    assert_eq!(replies.receive_with(waiting).await.unwrap().len(), 3);
}

#[tokio::test]
async fn replies_that_a_collecting_mailbox_passes_on_are_not_its_own() {
    let requests = CollectingMailbox::<u32, u32>::new("requests").unwrap();
    requests.send_with(1, SendOptions::new().with_reply_to("other")).await.unwrap();
    let request = requests.receive().await.unwrap().remove(0);
    request.reply(2).await.unwrap();
    assert_eq!(requests.sent().unwrap(), [1]);
    let other = request.reply_mailbox().await.unwrap();
    assert_eq!(*other.receive().await.unwrap()[0].body().unwrap(), 2);
}

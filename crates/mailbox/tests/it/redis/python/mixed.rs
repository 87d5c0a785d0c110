//! Messages of either side, received by either side: one at a time, and both at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mailbox::{Backend, Mailbox, Outgoing, ReceiveOptions, SendOptions, Settlement, Verdict};

use super::{Python, Taken, is_shared, uuid4, write_by_hand};
use crate::redis::{Place, jobs, seconds, until};

#[tokio::test]
async fn a_mailbox_written_by_hand_is_received_and_leaves_nothing_that_is_shared() {
    let place = Place::new().await;
    let id = uuid4();
    write_by_hand(&mut place.node.connect().unwrap(), &id, r#"{"n": 1}"#, Some("answers"));
    let enqueued = place.meta(&id)["enqueued"].clone();
    let taken = place.receive(seconds(30)).await.unwrap();
    assert_eq!((taken.id.to_string(), taken.delivery_count), (id.clone(), 1));
    assert_eq!(&taken.letter.payload[..], br#"{"n": 1}"#);
    assert_eq!(taken.letter.reply_to.as_deref(), Some("answers"));
    assert_eq!(taken.letter.enqueued_at, enqueued.parse().unwrap());
    assert!(taken.receipt_handle.to_string().starts_with(&format!("{id}:")));
    place.settle(&taken, Verdict::Acknowledge).await.unwrap();
    // Ours alone is left: totals, and for a moment that it was there. Both go by themselves.
    assert_eq!(place.parts(), ["gone", "state"]);
    assert!(place.ttl("state") > 0 && place.ttl("gone") > 0);
}

#[tokio::test]
async fn ours_sends_and_the_other_side_receives_nacks_extends_and_acknowledges() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let mut message = Outgoing::new(r#"{"n":1}"#.into());
    message.attributes.insert("k".into(), "v".into());
    message.reply_to = Some("answers".into());
    let id = place.send_message(message).await;
    let taken = python.receive(seconds(30)).unwrap();
    assert_eq!((&taken.id, taken.count, taken.body.as_deref()), (&id, 1, Some(r#"{"n":1}"#)));
    assert_eq!(taken.reply_to.as_deref(), Some("answers"));
    assert_eq!(taken.enqueued.as_deref(), Some(&*place.meta(&id)["enqueued"]));
    assert!(python.extend(&taken, seconds(60)));
    assert!(place.receive(seconds(30)).await.is_none());
    assert!(python.nack(&taken, Duration::ZERO));
    // Its deliveries count as ours do.
    let ours = place.receive(seconds(30)).await.unwrap();
    assert_eq!((ours.id.to_string(), ours.delivery_count), (id, 2));
    assert_eq!(ours.letter.attributes["k"], "v");
    place.settle(&ours, crate::redis::nack(Duration::ZERO)).await.unwrap();
    let taken = python.receive(seconds(30)).unwrap();
    assert_eq!(taken.count, 3);
    assert!(python.ack(&taken));
    assert!(!python.ack(&taken), "it is gone");
    assert!(!place.parts().iter().any(|part| is_shared(part) && part != "meta"));
}

#[tokio::test]
async fn the_other_side_sends_and_ours_receives_nacks_extends_and_rejects() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let id = python.send("1");
    let taken = place.receive(seconds(30)).await.unwrap();
    assert_eq!((taken.id.to_string(), taken.delivery_count), (id.clone(), 1));
    place.settle(&taken, Verdict::Extend { timeout: seconds(60) }).await.unwrap();
    place.settle(&taken, crate::redis::nack(Duration::ZERO)).await.unwrap();
    let theirs = python.receive(seconds(30)).unwrap();
    assert_eq!((&theirs.id, theirs.count), (&id, 2));
    assert!(python.nack(&theirs, Duration::ZERO));
    let taken = place.receive(seconds(30)).await.unwrap();
    assert_eq!(taken.delivery_count, 3);
    let reason = mailbox::DeadReason::Rejected;
    place.settle(&taken, Verdict::Reject { reason, error: None }).await.unwrap();
    assert_eq!(place.parts(), ["dead", "graves", "state"]);
    assert!(python.receive(seconds(30)).is_none(), "dead letters are nobody's to receive");
    // Back in line it is a message like others, also for those who know nothing of dead letters.
    place.backend.redrive(&jobs(), &mailbox::Selection::All).await.unwrap();
    let theirs = python.receive(seconds(30)).unwrap();
    assert_eq!((&theirs.id, theirs.count, theirs.body.as_deref()), (&id, 1, Some("1")));
    assert!(python.ack(&theirs));
}

#[tokio::test]
async fn replies_go_both_ways_by_bare_name() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    // Ours asks, the other side answers.
    let backend = Arc::clone(&place.backend) as Arc<dyn Backend>;
    let questions: Mailbox<u32, String> = place.jobs();
    let answers: Mailbox<String> = Mailbox::new(backend, "answers".parse().unwrap());
    let options = SendOptions::new().with_reply_to(&answers);
    questions.send_with(1, options).await.unwrap();
    let question = python.receive(seconds(30)).unwrap();
    let reply_to = question.reply_to.clone().expect("it says where to");
    Python::at_mailbox(&place.node, &reply_to).send(r#""one""#);
    assert!(python.ack(&question));
    let answer = answers.receive().await.unwrap().remove(0);
    assert_eq!(answer.body().unwrap(), "one");
    answer.acknowledge().await.unwrap();
    // The other side asks, ours answers.
    python.send_as(&uuid4(), "2", "python-answers");
    let question = questions.receive().await.unwrap().remove(0);
    question.reply("two".to_owned()).await.unwrap();
    question.acknowledge().await.unwrap();
    let mut waiting = Python::at_mailbox(&place.node, "python-answers");
    assert_eq!(waiting.receive(seconds(30)).unwrap().body.as_deref(), Some(r#""two""#));
}

/// How many messages each side sends.
const EACH: u32 = 250;

/// Takes what there is until all has been taken by somebody.
fn consume(python: &mut Python, is_done: impl Fn() -> bool) -> Vec<Taken> {
    let mut all = Vec::new();
    while !is_done() {
        if let Some(taken) = python.receive(seconds(600)) {
            assert!(python.ack(&taken), "{taken:?}");
            all.push(taken);
        }
    }
    all
}

async fn consume_ours(backend: &dyn Backend, is_done: impl Fn() -> bool) -> Vec<String> {
    let mut all = Vec::new();
    let several = ReceiveOptions::new()
        .with_max_messages(5)
        .with_wait(Duration::from_millis(200))
        .with_visibility_timeout(seconds(600));
    while !is_done() {
        let taken = backend.receive(&jobs(), &several).await.unwrap();
        let settlement =
            |receipt_handle| Settlement { receipt_handle, verdict: Verdict::Acknowledge };
        all.extend(taken.iter().map(|delivery| delivery.id.to_string()));
        let batch: Vec<Settlement> =
            taken.into_iter().map(|delivery| settlement(delivery.receipt_handle)).collect();
        let settled = backend.settle(&jobs(), batch).await.unwrap();
        settled.into_iter().for_each(|result| result.unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_send_and_consume_at_once_and_every_message_is_had_by_one() {
    let place = Arc::new(Place::new().await);
    let node_of = |place: &Arc<Place>| Python::at(&place.node);
    let (mut sender, mut consumer) = (node_of(&place), node_of(&place));
    let looker = Arc::clone(&place);
    // Nothing is in line, nobody has anything, and all was sent.
    let sent = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let all = Arc::clone(&sent);
    let is_done = move || {
        let both = all.load(std::sync::atomic::Ordering::Acquire) == 2;
        both && !looker.parts().contains(&"data".to_owned())
    };
    let (done, theirs_sent) = (is_done.clone(), Arc::clone(&sent));
    let theirs = tokio::task::spawn_blocking(move || consume(&mut consumer, done));
    let sending = tokio::task::spawn_blocking(move || {
        let ids: Vec<String> = (0..EACH).map(|n| sender.send(&n.to_string())).collect();
        theirs_sent.fetch_add(1, std::sync::atomic::Ordering::Release);
        ids
    });
    let ours = {
        let (place, done) = (Arc::clone(&place), is_done.clone());
        tokio::spawn(async move { consume_ours(&*place.backend, done).await })
    };
    let mut ids = Vec::new();
    for n in 0..EACH {
        ids.push(place.send(&n.to_string()).await);
    }
    sent.fetch_add(1, std::sync::atomic::Ordering::Release);
    ids.extend(sending.await.unwrap());
    let (ours, theirs) = (ours.await.unwrap(), theirs.await.unwrap());
    assert!(!ours.is_empty() && !theirs.is_empty(), "{} and {}", ours.len(), theirs.len());
    let mut had: BTreeMap<&str, u32> = BTreeMap::new();
    for id in ours.iter().chain(theirs.iter().map(|taken| &taken.id)) {
        *had.entry(id).or_default() += 1;
    }
    assert_eq!(had.len(), ids.len());
    for id in &ids {
        assert_eq!(had.get(id.as_str()), Some(&1), "{id}");
    }
    // What ours keeps beside messages that the other side acknowledged goes, little by little.
    until("all is cleared away", || async {
        place.backend.stats(&jobs()).await.unwrap();
        place.parts() == ["gone", "state"]
    })
    .await;
}

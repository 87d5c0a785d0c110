//! What the other side leaves behind of our messages when it acknowledges them: fields and keys
//! that it does not know. They go with our next receives and counts.

use mailbox::{Backend, Outgoing};

use super::Python;
use crate::redis::{Place, jobs, seconds, until};

fn with_everything(n: u32) -> Outgoing {
    let mut message = Outgoing::new(n.to_string().into());
    message.attributes.insert("k".into(), "v".into());
    message.idempotency_key = Some(n.to_string());
    message.group = Some((n % 3).to_string());
    message
}

/// Which keys are left but totals and idempotency keys, which end by themselves.
fn left(place: &Place) -> Vec<String> {
    let ends = ["known", "known_until", "state"];
    place.parts().into_iter().filter(|part| !ends.contains(&&**part)).collect()
}

#[tokio::test]
async fn a_receive_clears_away_what_the_other_side_leaves_behind() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    for n in 0..3 {
        place.send_message(with_everything(n)).await;
        let taken = python.receive(seconds(30)).unwrap();
        assert!(python.ack(&taken));
    }
    assert_eq!(left(&place), ["ages", "heads", "meta"], "it knows nothing of these");
    until("receives clear it away", || async {
        assert!(place.receive(seconds(30)).await.is_none());
        left(&place).is_empty()
    })
    .await;
    for part in ["known", "known_until", "state"] {
        assert!(place.ttl(part) > 0, "{part}");
    }
}

#[tokio::test]
async fn counting_clears_away_what_the_other_side_leaves_behind_amid_others() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    // Many old ones, which stay: whoever looks at the first few again and again sees only these.
    let mut delayed = Outgoing::new("0".into());
    delayed.delay = seconds(3_600);
    for _ in 0..5 {
        let batch = vec![delayed.clone(); 200];
        place.backend.send(&jobs(), batch).await.unwrap();
    }
    for n in 0..10 {
        place.send_message(with_everything(n)).await;
    }
    let mut had = 0;
    until("the other side has them all", || {
        if let Some(taken) = python.receive(seconds(30)) {
            assert!(python.ack(&taken));
            had += 1;
        }
        async { place.receive(seconds(0)).await.is_none() }
    })
    .await;
    until("counting clears it away", || async {
        place.backend.stats(&jobs()).await.unwrap();
        place.scores("ages").len() == 1_000 && place.hash("heads").is_empty()
    })
    .await;
    assert_eq!(place.hash("meta").len(), 3_000, "enqueued, attrs and turn of those that stay");
}

#[tokio::test]
async fn a_group_goes_on_when_the_other_side_acknowledges_its_first() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let mut ids = Vec::new();
    for n in [0, 3, 6] {
        ids.push(place.send_message(with_everything(n)).await);
    }
    let first = python.receive(seconds(30)).unwrap();
    assert_eq!(first.id, ids[0]);
    assert!(python.receive(seconds(30)).is_none(), "one at a time");
    assert!(python.ack(&first));
    // Nobody has to count for that: whoever receives sees to it.
    let second = place.receive(seconds(30)).await.expect("the next one has moved up");
    assert_eq!(second.id.to_string(), ids[1]);
}

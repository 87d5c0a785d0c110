//! Points 5 and 6: what is expired comes back to whoever receives, with nobody else at work; and a
//! deadline that has passed has passed, whether anybody has looked or not.

use std::time::Duration;

use mailbox::{Backend, DeadReason, ErrorKind, ReceiveOptions, Verdict};

use crate::redis::python::Python;
use crate::redis::{Place, jobs, millis, nack, seconds};

#[tokio::test]
async fn point_5_a_receive_takes_what_is_expired_without_a_reaper() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    for n in 0..5 {
        python.send(&n.to_string());
        assert!(python.receive(millis(20)).is_some());
    }
    place.until_all_due().await;
    assert!(python.receive(seconds(30)).is_none(), "nobody has brought them back for it");
    // The server knows the script: another mailbox.
    let options = ReceiveOptions::new().with_max_messages(10);
    place.backend.receive(&"other".parse().unwrap(), &options).await.unwrap();
    let before = place.scripts();
    let taken = place.backend.receive(&jobs(), &options).await.unwrap();
    assert_eq!(taken.len(), 5);
    assert!(taken.iter().all(|delivery| delivery.delivery_count == 2));
    assert_eq!(place.scripts() - before, 1);
}

#[tokio::test]
async fn point_5_a_receive_that_waits_takes_what_expires_meanwhile() {
    let place = Place::new().await;
    let id = place.send("1").await;
    place.receive(millis(300)).await.unwrap();
    let options = ReceiveOptions::new().with_wait(seconds(15));
    let taken = place.backend.receive(&jobs(), &options).await.unwrap();
    assert_eq!((taken[0].id.to_string(), taken[0].delivery_count), (id, 2));
}

#[tokio::test]
async fn point_5_whoever_only_sends_runs_nothing_beside() {
    let place = Place::new().await;
    place.send("1").await;
    let commands = || {
        let stats: String = place.run(&["INFO", "stats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = commands();
    tokio::time::sleep(millis(700)).await;
    // The look itself is a command.
    assert_eq!(commands() - before, 1);
    assert_eq!(place.clients().len(), 1);
}

#[tokio::test]
async fn point_6_no_verdict_counts_after_the_deadline() {
    let place = Place::new().await;
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error: None };
    let extend = Verdict::Extend { timeout: seconds(30) };
    let verdicts = [Verdict::Acknowledge, nack(Duration::ZERO), nack(seconds(30)), extend, reject];
    let id = place.send("1").await;
    for (before, verdict) in verdicts.into_iter().enumerate() {
        let taken = place.receive(millis(20)).await.unwrap();
        assert_eq!(taken.id.to_string(), id);
        assert_eq!(usize::try_from(taken.delivery_count).unwrap(), before + 1);
        place.until_all_due().await;
        let late = place.settle(&taken, verdict.clone()).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::ReceiptHandleExpired, "{verdict:?}");
        assert_eq!(place.list("pending"), [id.as_str()], "{verdict:?}");
    }
}

#[tokio::test]
async fn point_6_the_other_side_takes_an_acknowledgement_that_is_too_late() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    python.send("1");
    let taken = python.receive(millis(20)).unwrap();
    place.until_all_due().await;
    assert!(python.ack(&taken), "the mistake is there to be seen");
}

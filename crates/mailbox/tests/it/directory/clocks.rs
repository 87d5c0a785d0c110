//! Time: wall clocks that are set, machines that start again, and files that are touched. None of
//! it moves a deadline.

use std::time::{Duration, Instant};

use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, DeadReason, Delivery, ErrorKind, Phase, ReceiveOptions, Timestamp, Verdict,
};

use super::{Place, SOON, nack, orders, send, settle, text};

const TIMEOUT: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);
const NEW_YEAR: i64 = 1_735_689_600_000;

fn config(clock: &ManualClock) -> DirectoryConfig {
    DirectoryConfig::default().with_clock(clock.into())
}

fn years_later(years: i64) -> Timestamp {
    Timestamp::from_unix_millis(NEW_YEAR + years * 31_536_000_000)
}

/// The clock of another boot, whose wall clock is two minutes behind what this one shows (V6).
fn boot_with_slow_clock(before: &ManualClock) -> ManualClock {
    let clock = ManualClock::new();
    let (_, wall, _) = before.face();
    clock.step_wall(wall.before(Duration::from_secs(120)));
    clock
}

/// The clock of another boot, whose wall clock is off by this many years.
fn other_boot(years: i64) -> ManualClock {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(77));
    clock.step_wall(years_later(years));
    clock
}

async fn receive(backend: &DirectoryBackend) -> Option<Delivery> {
    let options = ReceiveOptions::new().with_visibility_timeout(TIMEOUT);
    backend.receive(&orders(), &options).await.unwrap().pop()
}

async fn shown(backend: &DirectoryBackend) -> (Phase, Duration) {
    let live = mailbox::Peek::Live { limit: 1 };
    let records = backend.peek(&orders(), &live).await.unwrap();
    (records[0].phase, records[0].receivable_in)
}

#[tokio::test]
async fn steps_of_the_wall_clock_change_no_deadline() {
    let clock = ManualClock::new();
    let place = Place::with(config(&clock)).await;
    place.send("work").await;
    let delivery = receive(&place.backend).await.unwrap();
    for years in [-10, 10, 0] {
        clock.step_wall(years_later(years));
        assert_eq!(shown(&place.backend).await, (Phase::Invisible, TIMEOUT), "{years}");
        // Whoever comes later goes by the same time.
        let other = place.another(config(&clock)).await;
        assert_eq!(shown(&other).await, (Phase::Invisible, TIMEOUT), "{years}");
        assert!(receive(&other).await.is_none());
    }
    clock.advance(TIMEOUT - Duration::from_millis(1));
    assert!(receive(&place.backend).await.is_none());
    clock.advance(Duration::from_millis(1));
    let error = place.settle(&delivery, Verdict::Acknowledge).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired);
    assert_eq!(receive(&place.backend).await.unwrap().delivery_count, 2);
}

#[tokio::test]
async fn a_delay_is_the_same_whatever_the_wall_clock_shows() {
    let clock = ManualClock::new();
    let place = Place::with(config(&clock)).await;
    let mut outgoing = mailbox::Outgoing::new("later".into());
    outgoing.delay = HOUR;
    place.backend.send(&orders(), vec![outgoing]).await.unwrap().remove(0).unwrap();
    clock.step_wall(years_later(10));
    assert!(receive(&place.backend).await.is_none());
    clock.step_wall(years_later(-10));
    clock.advance(HOUR);
    assert_eq!(text(&receive(&place.backend).await.unwrap()), "later");
}

#[tokio::test]
async fn after_another_boot_a_delivery_holds_for_one_more_timeout_at_most() {
    for years in [-10, 0] {
        let clock = ManualClock::new();
        let place = Place::with(config(&clock)).await;
        place.send("work").await;
        let delivery = receive(&place.backend).await.unwrap();
        clock.advance(Duration::from_secs(10));
        place.backend.close().await.unwrap();
        let clock = other_boot(years);
        let backend = place.another(config(&clock)).await;
        let (phase, left) = shown(&backend).await;
        assert_eq!(phase, Phase::Invisible, "{years}");
        assert!(left <= TIMEOUT, "{years}: {left:?} is more than one more timeout");
        assert!(left >= TIMEOUT - Duration::from_secs(10), "{years}: {left:?} is too early");
        clock.advance(left - Duration::from_millis(1));
        assert!(receive(&backend).await.is_none());
        settle(&*backend, &delivery, Verdict::Extend { timeout: TIMEOUT }).await.unwrap();
        clock.advance(TIMEOUT - Duration::from_millis(1));
        settle(&*backend, &delivery, Verdict::Acknowledge).await.unwrap();
        assert_eq!(backend.stats(&orders()).await.unwrap().live(), 0, "{years}");
    }
}

#[tokio::test]
async fn after_another_boot_a_delivery_ends_at_its_deadline() {
    for years in [-10, 0, 10] {
        let clock = ManualClock::new();
        let place = Place::with(config(&clock)).await;
        place.send("work").await;
        let delivery = receive(&place.backend).await.unwrap();
        place.backend.close().await.unwrap();
        let clock = other_boot(years);
        let backend = place.another(config(&clock)).await;
        // Time goes on from the first look at it.
        assert!(shown(&backend).await.1 <= TIMEOUT, "{years}");
        clock.advance(TIMEOUT);
        let error = settle(&*backend, &delivery, Verdict::Acknowledge).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired, "{years}");
        let again = receive(&backend).await.unwrap();
        assert_eq!((again.id.clone(), again.delivery_count), (delivery.id.clone(), 2), "{years}");
    }
}

#[tokio::test]
async fn inbox_time_does_not_go_back_over_a_boot() {
    let clock = ManualClock::new();
    let place = Place::with(config(&clock)).await;
    place.send("first").await;
    clock.advance(HOUR);
    place.send("second").await;
    place.backend.close().await.unwrap();
    let clock = other_boot(-10);
    let backend = place.another(config(&clock)).await;
    send(&*backend, "third").await;
    let age = backend.stats(&orders()).await.unwrap().oldest_age.unwrap();
    assert!(age >= HOUR && age < 2 * HOUR, "{age:?}");
    for payload in ["first", "second", "third"] {
        assert_eq!(text(&receive(&backend).await.unwrap()), payload);
    }
}

#[tokio::test]
async fn what_was_receivable_before_a_boot_is_receivable_after_it() {
    let clock = ManualClock::new();
    let place = Place::with(config(&clock)).await;
    place.send("work").await;
    clock.advance(HOUR);
    let delivery = receive(&place.backend).await.unwrap();
    place.settle(&delivery, nack()).await.unwrap();
    assert_eq!(shown(&place.backend).await, (Phase::Ready, Duration::ZERO));
    place.backend.close().await.unwrap();
    let backend = place.another(config(&boot_with_slow_clock(&clock))).await;
    assert_eq!(shown(&backend).await, (Phase::Ready, Duration::ZERO));
    assert!(receive(&backend).await.is_some());
}

#[tokio::test]
async fn dead_letters_stay_in_order_over_a_boot() {
    let clock = ManualClock::new();
    let place = Place::with(config(&clock)).await;
    place.send("first").await;
    place.send("second").await;
    clock.advance(HOUR);
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error: None };
    let first = receive(&place.backend).await.unwrap();
    place.settle(&first, reject.clone()).await.unwrap();
    place.backend.close().await.unwrap();
    let other = place.another(config(&boot_with_slow_clock(&clock))).await;
    let place = Place { backend: other, ..place };
    let second = receive(&place.backend).await.unwrap();
    place.settle(&second, reject).await.unwrap();
    let ids: Vec<_> = place.dead().await.into_iter().map(|(record, _)| record.id).collect();
    assert_eq!(ids, [first.id, second.id]);
}

#[tokio::test]
async fn touching_a_file_does_not_change_how_long_a_shell_has_it() {
    // Longer than from one look to the next.
    const LEASE: Duration = Duration::from_millis(1_600);
    for events in [true, false] {
        let mut config = DirectoryConfig::default();
        config.events = events;
        let place = Place::with(config).await;
        place.set("shell_lease", "1.6s");
        assert!(place.receive_now().await.is_none());
        for day in ["1970-01-02", "2037-01-02"] {
            place.put("incoming/job.json", "1");
            let taken = Instant::now();
            place.bash("mv incoming/job.json processing/");
            assert!(place.receive_now().await.is_none());
            place.bash(&format!("touch -d {day} processing/job.json"));
            let delivery = place.receive().await;
            let took = taken.elapsed();
            assert!(took >= LEASE && took < LEASE + SOON, "{day}, events {events}: {took:?}");
            place.acknowledge(&delivery).await;
        }
    }
}

#[tokio::test]
async fn whoever_keeps_touching_a_file_does_not_keep_it() {
    let place = Place::new().await;
    place.set("shell_lease", "0.4s");
    assert!(place.receive_now().await.is_none());
    place.put("incoming/job.json", "1");
    place.bash("mv incoming/job.json processing/");
    assert!(place.receive_now().await.is_none());
    let script = "for i in {1..60}; do touch processing/job.json -c; sleep 0.1; done";
    let mut command = std::process::Command::new("bash");
    let mut toucher = command.args(["-c", script]).current_dir(place.at("")).spawn().unwrap();
    let start = Instant::now();
    let delivery = place.receive().await;
    let is_touched = toucher.try_wait().unwrap().is_none();
    toucher.kill().unwrap();
    toucher.wait().unwrap();
    assert!(is_touched, "only after {:?}", start.elapsed());
    assert_eq!(delivery.delivery_count, 2);
}

//! Many verdicts in one call: each has its own answer, and all together leave what they would have
//! left one after the other. A backend that keeps everything in memory does the same beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mailbox::backends::memory::{MemoryBackend, MemoryConfig};
use mailbox::backends::redis::RedisConfig;
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, DeadReason, Delivery, ErrorKind, LateSettle, Outgoing, Peek, Phase, Policy,
    ReceiptHandle, ReceiveOptions, Settlement, Verdict,
};

use super::python::Python;
use super::{Place, jobs, nack, seconds};

/// What became of the messages of a mailbox.
#[derive(Debug, PartialEq)]
struct Outcome {
    answers: Vec<Option<ErrorKind>>,
    /// Payload: where it is, deliveries, last error, why it died.
    messages: BTreeMap<String, (Phase, u32, Option<String>, Option<DeadReason>)>,
    /// In the order in which they are received.
    line: Vec<(String, u32)>,
    /// Dead letters, the oldest first.
    dead: Vec<String>,
    /// Delayed, ready, invisible, dead.
    counts: [u64; 4],
    acknowledged: u64,
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

const fn reject() -> Verdict {
    Verdict::Reject { reason: DeadReason::Rejected, error: None }
}

const fn extend(timeout: Duration) -> Verdict {
    Verdict::Extend { timeout }
}

async fn receive(backend: &dyn Backend) -> Vec<Delivery> {
    let options = ReceiveOptions::new().with_max_messages(256);
    let options = options.with_visibility_timeout(seconds(30));
    backend.receive(&jobs(), &options).await.unwrap()
}

/// Sends ten plain messages and three groups of three, and receives all that can be. Gives the
/// deliveries by their payload, and one that is over as `stale`.
async fn begin(backend: &dyn Backend) -> BTreeMap<String, ReceiptHandle> {
    let plain = (0..10).map(|number| Outgoing::new(format!("p{number}").into()));
    let grouped = ["g", "h", "i"].into_iter().flat_map(|group| {
        (1..4).map(move |number| {
            let mut message = Outgoing::new(format!("{group}{number}").into());
            message.group = Some(group.into());
            message
        })
    });
    let batch: Vec<Outgoing> = plain.chain(grouped).collect();
    let sent = backend.send(&jobs(), batch).await.unwrap();
    assert!(sent.iter().all(Result::is_ok));
    let name = |one: Delivery| (text(&one.letter.payload), one.receipt_handle);
    let mut held: BTreeMap<_, _> = receive(backend).await.into_iter().map(name).collect();
    assert_eq!(held.len(), 13, "the first of each group");
    let stale = held["p9"].clone();
    settle(backend, vec![(stale.clone(), nack(Duration::ZERO))]).await;
    held.extend(receive(backend).await.into_iter().map(name));
    held.insert("stale".into(), stale);
    held.insert("nobody".into(), ReceiptHandle::from_text("01JCSN0000000000000000000:0"));
    held
}

async fn settle(
    backend: &dyn Backend,
    batch: Vec<(ReceiptHandle, Verdict)>,
) -> Vec<Option<ErrorKind>> {
    let batch = batch.into_iter();
    let batch = batch.map(|(receipt_handle, verdict)| Settlement { receipt_handle, verdict });
    let settled = backend.settle(&jobs(), batch.collect()).await.unwrap();
    settled.into_iter().map(|one| one.err().map(|error| error.kind())).collect()
}

async fn outcome(backend: &dyn Backend, answers: Vec<Option<ErrorKind>>) -> Outcome {
    let live = backend.peek(&jobs(), &Peek::Live { limit: 100 }).await.unwrap();
    let dead = Peek::Dead { after: None, limit: 100 };
    let dead = backend.peek(&jobs(), &dead).await.unwrap();
    let messages = live.iter().chain(&dead).map(|one| {
        let death = one.death.as_ref().map(|death| death.reason);
        let about = (one.phase, one.delivery_count, one.last_error.clone(), death);
        (text(&one.letter.payload), about)
    });
    let (messages, dead) =
        (messages.collect(), dead.iter().map(|one| text(&one.letter.payload)).collect());
    let stats = backend.stats(&jobs()).await.unwrap();
    let counts = [stats.delayed, stats.ready, stats.invisible, stats.dead];
    let line = receive(backend).await;
    let line = line.iter().map(|one| (text(&one.letter.payload), one.delivery_count)).collect();
    let acknowledged = stats.totals.acknowledged;
    Outcome { answers, messages, line, dead, counts, acknowledged }
}

#[tokio::test]
async fn verdicts_in_one_call_have_answers_of_their_own_and_leave_what_each_would_leave() {
    let over = Some(ErrorKind::ReceiptHandleExpired);
    let why = Verdict::Nack { delay: Duration::ZERO, error: Some("no paper".into()) };
    let told: Vec<(&str, Verdict, Option<ErrorKind>)> = vec![
        ("p0", Verdict::Acknowledge, None),
        ("p1", why, None),
        ("g1", Verdict::Acknowledge, None),
        ("p0", Verdict::Acknowledge, over),
        ("p0", nack(Duration::ZERO), over),
        ("p2", extend(seconds(60)), None),
        ("p2", Verdict::Acknowledge, None),
        ("p2", extend(seconds(60)), over),
        ("p3", reject(), None),
        ("p3", Verdict::Acknowledge, over),
        ("p4", Verdict::Return, None),
        ("p4", Verdict::Acknowledge, over),
        ("stale", Verdict::Acknowledge, over),
        ("nobody", Verdict::Acknowledge, over),
        ("p5", Verdict::Acknowledge, None),
        ("h1", nack(seconds(60)), None),
        ("h1", Verdict::Acknowledge, over),
        ("p6", Verdict::Acknowledge, None),
        ("p6", reject(), over),
        ("p6", Verdict::Return, over),
        ("i1", Verdict::Acknowledge, None),
        ("p7", extend(seconds(60)), None),
        ("p7", extend(seconds(90)), None),
        ("p8", nack(Duration::ZERO), None),
    ];
    let verdicts: Vec<_> = told.iter().map(|(name, what, _)| (*name, what.clone())).collect();
    let place = Place::new().await;
    let held = begin(&*place.backend).await;
    let batch = verdicts.iter().map(|(name, verdict)| (held[*name].clone(), verdict.clone()));
    let answers = settle(&*place.backend, batch.collect()).await;
    // What was acknowledged has left nothing.
    let (data, ages) = (place.hash("data"), place.scores("ages"));
    assert_eq!((data.len(), ages.len()), (12, 12));
    assert!(ages.iter().all(|(id, _)| data.contains_key(id)), "{ages:?}");
    let gone: BTreeSet<String> = place.scores("gone").into_iter().map(|(id, _)| id).collect();
    assert_eq!(gone.len(), 6);
    let meta = place.hash("meta");
    assert!(gone.iter().all(|id| !meta.keys().any(|field| field.starts_with(id))), "{meta:?}");
    let found = outcome(&*place.backend, answers).await;
    let wanted: Vec<Option<ErrorKind>> = told.iter().map(|(_, _, answer)| *answer).collect();
    for (at, (name, verdict, answer)) in told.iter().enumerate() {
        assert_eq!(found.answers[at], *answer, "{at}: {name} {verdict:?}");
    }
    let line = [("p4", 1), ("p1", 2), ("g2", 1), ("i2", 1), ("p8", 2)];
    // The next of a group is in line when its first has left, before what was given back later.
    let mut in_line: Vec<(&str, u32)> = found.line.iter().map(|(p, n)| (&**p, *n)).collect();
    assert_eq!(in_line.len(), line.len(), "{in_line:?}");
    assert_eq!(in_line.remove(0), line[0], "what was never had is before all others");
    assert_eq!(in_line, line[1..]);
    assert_eq!(found.dead, ["p3"]);
    assert_eq!(found.counts, [1, 5 + 4, 2, 1], "h1; line and i3, g3, h2, h3; p7, p9; p3");
    assert_eq!(found.acknowledged, 6);
    assert_eq!(found.messages["p1"].2.as_deref(), Some("no paper"));
    assert_eq!(found.messages["h1"].0, Phase::Delayed);
    assert_eq!(found.answers, wanted);
    let memory = MemoryBackend::new();
    let held = begin(&*memory).await;
    let batch = verdicts.iter().map(|(name, verdict)| (held[*name].clone(), verdict.clone()));
    let answers = settle(&*memory, batch.collect()).await;
    assert_eq!(found, outcome(&*memory, answers).await);
}

#[tokio::test]
async fn a_delayed_message_that_others_brought_back_leaves_nothing_when_it_is_acknowledged() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let mut message = Outgoing::new("1".into());
    message.delay = Duration::from_millis(1);
    place.send_message(message).await;
    place.until_all_due().await;
    assert_eq!(python.reap(), 1);
    assert_eq!(place.scores("delayed").len(), 1, "it knows nothing of this");
    let taken = place.receive(seconds(30)).await.unwrap();
    place.settle(&taken, Verdict::Acknowledge).await.unwrap();
    assert_eq!(place.parts(), ["gone", "state"]);
}

#[tokio::test]
async fn any_verdicts_in_one_call_leave_what_they_leave_in_memory() {
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let seed = u64::from_be_bytes(random);
    let mut state = seed;
    let mut below = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((state >> 33) % bound as u64).unwrap()
    };
    let names = ["p0", "p1", "p2", "p3", "p4", "p5", "p9", "g1", "h1", "i1", "stale", "nobody"];
    let clock = ManualClock::new();
    let place = Place::with(RedisConfig::default().with_clock(clock.clock())).await;
    let both = [LateSettle::Refuse, LateSettle::UntilRedelivered];
    for (round, late_settle) in both.into_iter().cycle().take(60).enumerate() {
        let memory = MemoryConfig::default().with_clock(clock.clock());
        let memory = MemoryBackend::with_config(memory).unwrap();
        let backends: [&dyn Backend; 2] = [&*place.backend, &*memory];
        let mut verdicts = Vec::new();
        for _ in 0..1 + below(24) {
            let verdict = match below(10) {
                0..5 => Verdict::Acknowledge,
                5 => nack(Duration::ZERO),
                6 => nack(seconds(60)),
                7 => extend(seconds([20, 50][below(2)])),
                8 => reject(),
                _ => Verdict::Return,
            };
            verdicts.push((names[below(names.len())], verdict));
        }
        let mut held = Vec::new();
        for backend in backends {
            let policy = Policy { late_settle, ..Policy::default() };
            backend.configure(&jobs(), policy).await.unwrap();
            held.push(begin(backend).await);
        }
        // Now and then it is too late for all of them, or was for some.
        let late = below(4) == 0;
        clock.advance(seconds(if late { 31 } else { 1 }));
        let mut found = Vec::new();
        for (backend, held) in backends.into_iter().zip(&held) {
            let batch = verdicts.iter().map(|(name, what)| (held[*name].clone(), what.clone()));
            let answers = settle(backend, batch.collect()).await;
            found.push(outcome(backend, answers).await);
        }
        let told = format!("seed {seed}, round {round}, {late_settle:?}, late {late}");
        assert_eq!(found[0], found[1], "{told}: {verdicts:?}");
        assert!(place.backend.remove(&jobs()).await.unwrap());
    }
}

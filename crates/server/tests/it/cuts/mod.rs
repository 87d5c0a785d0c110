//! Connections that are cut, at every frame and inside of frames, while others work and do not
//! notice: nothing that was accepted is lost, nothing that was settled comes back, and nothing is
//! out of sight for longer than its visibility timeout.
//!
//! Each session that is cut has a mailbox of its own, so that it is known of every message where it
//! may be: one that its client has heard of is the client's until its time is over; one whose
//! answer cannot have left the service is given back at once, as if it had never been received; and
//! what is done by a frame is done as a whole, or not at all.

mod books;
mod claim;
mod ear;
mod load;
mod plan;
mod script;
mod session;
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mailbox::backends::journal::JournalConfig;
use tokio::task::JoinSet;

use crate::rig::{Rig, Served, figure, journal, until};
use claim::Claim;
use plan::{Cut, plan};
use script::Kind;
use stage::Stage;

const KIB: usize = 1024;
/// How long those have what they receive whose connections are cut.
const VISIBILITY: Duration = Duration::from_secs(2);
/// What comes on top until others can receive it, in beats of the machine.
const EPSILON: Duration = Duration::from_millis(500);
/// The same for a disk that others use too.
const DISK: Duration = Duration::from_secs(1);
/// How long a round of work of those may take whose connections are not cut.
const NOTICE: Duration = Duration::from_millis(500);
/// Room of a client for what it does not read.
const ROOM: u32 = 16 * 1024;
/// More bytes than fit between the service and a client that does not read.
const FIT: usize = 160 * KIB;
/// Connections that are cut at a time.
const LANES: usize = 12;
const WORKERS: usize = 3;

/// Makes up to so many cuts while others work, and looks meanwhile what has become of messages. How
/// many there were.
async fn run(served: &Served, most: usize, grace: Duration) -> usize {
    let stage = Stage::new(served, grace);
    let stop = Arc::new(AtomicBool::new(false));
    let workers = workers(served, &stage, &stop).await;
    let (mut shapes, mut audits) = (Vec::new(), JoinSet::new());
    for (turn, kind) in Kind::ALL.into_iter().enumerate() {
        let (shape, claim) = session::shape(&stage, turn, kind).await;
        shapes.push(shape);
        audits.spawn(claim.audit(Arc::clone(&stage)));
    }
    let cuts: Arc<Vec<Cut>> = Arc::new(plan(&shapes).into_iter().take(most).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let mut lanes = JoinSet::new();
    for _ in 0..LANES {
        let (stage, cuts, next) = (Arc::clone(&stage), Arc::clone(&cuts), Arc::clone(&next));
        lanes.spawn(async move {
            let mut audits = JoinSet::new();
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let Some(cut) = cuts.get(turn) else { break audits };
                let claim = session::cut(&stage, Kind::ALL.len() + turn, *cut).await;
                audits.spawn(claim.audit(Arc::clone(&stage)));
            }
        });
    }
    let mut claims = audits.join_all().await;
    for audits in lanes.join_all().await {
        claims.extend(audits.join_all().await);
    }
    stop.store(true, Ordering::Relaxed);
    let rounds = workers.join_all().await;
    assert!(rounds.iter().all(|rounds| *rounds >= 50), "there was no load: {rounds:?}");
    sweep(served, &stage, claims).await;
    stage.books.tally.check(cuts.len());
    cuts.len()
}

/// Those who are not cut.
async fn workers(served: &Served, stage: &Arc<Stage>, stop: &Arc<AtomicBool>) -> JoinSet<usize> {
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let (own, stop) = (Arc::clone(stage), Arc::clone(stop));
        if number == 0 && stage.is_tls() {
            workers.spawn(load::work(own, served.oaps_client().await, number, stop));
        } else {
            workers.spawn(load::work(own, served.oap_client().await, number, stop));
        }
    }
    workers
}

/// Nothing is left of what was cut: no connection, nothing in anybody's hands, and no message but
/// those of which the client never heard what became of them.
async fn sweep(served: &Served, stage: &Arc<Stage>, claims: Vec<Claim>) {
    let topics = stage.topics().await;
    for mut claim in claims {
        let found = topics.iter().find(|entry| entry.topic == claim.topic);
        let Some(stats) = found.and_then(|entry| entry.stats.as_ref()) else { continue };
        assert_eq!((stats.delayed, stats.dead), (0, 0), "{}", claim.what);
        if stats.ready + stats.invisible > 0 {
            // What was said last was done when nobody looked any more.
            claim.by = stage.by(VISIBILITY);
            claim.audit(Arc::clone(stage)).await;
        }
    }
    let mut client = served.client().await;
    let own = stage.idle() as f64 + 1.0;
    until("nothing is left of them", async || {
        let seen = client.get("/metrics").await.text();
        figure(&seen, "connections", &[]) == own && figure(&seen, "handed_out", &[]) == 0.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cuts_in_memory_lose_nothing_and_strand_nothing() {
    let served = Rig::new().start().await;
    assert!(run(&served, usize::MAX, Duration::ZERO).await >= 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_on_a_journal_lose_nothing_and_strand_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = journal(&dir.path().join("j"), JournalConfig::default()).await;
    let served = Rig::on(store).start().await;
    assert_eq!(run(&served, 500, DISK).await, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_through_tls_lose_nothing_and_strand_nothing() {
    let served = Rig::new().certified().start().await;
    assert_eq!(run(&served, 500, Duration::ZERO).await, 500);
}

//! The slots of a busy mailbox move to another master and back, and servers forget their scripts,
//! all under load. Nothing may be lost, doubled or brought back, and nobody may see more of it than
//! a `Connection`.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::redis::book::Counts;
use crate::redis::failover::PATIENCE;
use crate::redis::load::{Lane, until};
use crate::redis::namespace::output;
use crate::redis::stage::{Stage, ask};
use crate::report::{NotRun, Outcome, say};
use crate::violation::Violation;

/// The mailbox is among the first slots: those are what `redis-cli` moves first.
const LAST_SLOT: u16 = 20;
/// How long messages gather before they move: what is big takes time to move.
const GATHERING: Duration = Duration::from_millis(700);
/// How often servers forget all scripts during a move.
const FLUSHES: u32 = 3;
/// Between two times that they do.
const BETWEEN_FLUSHES: Duration = Duration::from_millis(150);
/// Between two keys of a mailbox that moves slowly.
const BETWEEN_KEYS: Duration = Duration::from_millis(100);
/// Most keys that a mailbox has, and some more.
const KEYS: u32 = 50;

/// Runs it: so many times from one master to the next.
pub(crate) async fn run(stage: &mut Stage, moves: u64) -> Result<Outcome, NotRun> {
    let mut outcome = Outcome::start(None);
    match all(stage, moves, &mut outcome).await {
        Ok(()) => Ok(outcome.end()),
        Err(why) => outcome.obstructed(NotRun(why)),
    }
}

async fn all(stage: &mut Stage, moves: u64, outcome: &mut Outcome) -> Result<(), String> {
    stage.heal()?;
    let moved = stage.place(|_, slot| slot <= LAST_SLOT)?;
    let first = stage.master_of(moved.slot).ok_or("no master has the mailbox")?;
    let other = stage.place(|stage, slot| stage.master_of(slot).is_some_and(|m| m != first))?;
    let second = stage.master_of(other.slot).ok_or("no master has the other mailbox")?;
    let lanes = vec![
        Lane { name: moved.name.clone(), producers: 3, consumers: 3, rests: true },
        Lane { name: other.name.clone(), producers: 1, consumers: 1, rests: false },
    ];
    let load = stage.load(lanes, None).await?;
    let mut total = Counts::default();
    let mut longest = Duration::ZERO;
    while outcome.goes_on(moves) {
        let (from, to) =
            if outcome.faults.is_multiple_of(2) { (first, second) } else { (second, first) };
        let slowly = outcome.faults % 4 >= 2;
        load.book().mark();
        load.rest(true);
        tokio::time::sleep(GATHERING).await;
        load.rest(false);
        let start = Instant::now();
        let moving = async {
            match slowly {
                true => move_slowly(stage, from, to, moved.slot).await,
                false => reshard(stage, from, to, moved.slot).await,
            }
        };
        let (moving, flushes) = tokio::join!(moving, forget_scripts(stage));
        let time = start.elapsed();
        moving.and(flushes)?;
        // Servers tell each other.
        if !until(PATIENCE, || stage.master_of(moved.slot) == Some(to)).await {
            return Err("the mailbox did not move".to_owned());
        }
        load.flow().await?;
        let (gap, _) = load.book().longest_gap(0, start, Instant::now());
        stage.heal()?;
        load.settle().await;
        outcome.faults += 1;
        let counts = load.book().counts();
        outcome.acked_sends += counts.sends;
        outcome.acked_deletes += counts.acks;
        let found = load.book().take_violations();
        let lost = found.iter().filter(|one| matches!(one, Violation::Lost(_))).count();
        let how = if slowly { "key by key" } else { "by redis-cli" };
        let (time, wait) = (time.as_secs_f64(), gap.as_secs_f64());
        let still = format!("no send answered for {wait:.2} s");
        say(&format!("    moved {how} in {time:.2} s: {still}, {counts}, lost {lost}"));
        outcome.take_all(found);
        total.add(&counts);
        longest = longest.max(gap);
        load.flow().await?;
    }
    load.end().await;
    let (longest, shown) = (longest.as_secs_f64(), total);
    outcome.remark = Some(format!("no send answered for {longest:.2} s at most, {shown}"));
    Ok(())
}

/// Moves all slots up to this one with `redis-cli`.
async fn reshard(stage: &Stage, from: usize, to: usize, slot: u16) -> Result<(), String> {
    let mut command = Command::new("redis-cli");
    command
        .args(["--cluster", "reshard", &stage.node(from).address()])
        .args(["--cluster-from", &id(stage, from)?, "--cluster-to", &id(stage, to)?])
        .args(["--cluster-slots", &(slot + 1).to_string(), "--cluster-yes"]);
    let moved = tokio::task::spawn_blocking(move || output(&mut command)).await;
    let moved = moved.map_err(|error| error.to_string())?;
    moved.map(drop).map_err(|error| error.to_string())
}

/// Moves one slot as `redis-cli` does, but slowly: its mailbox is half here and half there, and
/// servers send everybody to and fro (ASK) or ask for patience (TRYAGAIN).
async fn move_slowly(stage: &Stage, from: usize, to: usize, slot: u16) -> Result<(), String> {
    let slot = slot.to_string();
    let (from_id, to_id) = (id(stage, from)?, id(stage, to)?);
    let set = |node: usize, words: &[&str]| {
        ask::<()>(stage.node(node), &[&["CLUSTER", "SETSLOT", &slot], words].concat())
    };
    set(to, &["IMPORTING", &from_id])?;
    set(from, &["MIGRATING", &to_id])?;
    let (host, port) = (stage.node(to).host(), stage.node(to).port().to_string());
    for _ in 0..KEYS {
        let next = ["CLUSTER", "GETKEYSINSLOT", &slot, "1"];
        let keys: Vec<String> = ask(stage.node(from), &next)?;
        let Some(key) = keys.first() else { break };
        ask::<()>(stage.node(from), &["MIGRATE", host, &port, key, "0", "5000"])?;
        tokio::time::sleep(BETWEEN_KEYS).await;
    }
    // First where it is now: then it is never nobody's.
    set(to, &["NODE", &to_id])?;
    set(from, &["NODE", &to_id])?;
    let others = (0..stage.cluster.nodes().len()).filter(|node| *node != to && *node != from);
    for node in others {
        let said: String = ask(stage.node(node), &["INFO", "replication"])?;
        if said.contains("role:master") {
            set(node, &["NODE", &to_id])?;
        }
    }
    Ok(())
}

fn id(stage: &Stage, node: usize) -> Result<String, String> {
    ask(stage.node(node), &["CLUSTER", "MYID"])
}

async fn forget_scripts(stage: &Stage) -> Result<(), String> {
    for _ in 0..FLUSHES {
        for node in stage.cluster.nodes() {
            ask::<()>(node, &["SCRIPT", "FLUSH"])?;
        }
        tokio::time::sleep(BETWEEN_FLUSHES).await;
    }
    Ok(())
}

//! A master under sentinels is killed or stands still, under load, until one of its replicas has
//! taken over. The same must hold as in a cluster.

use std::time::{Duration, Instant};

use mailbox::Name;
use mailbox_redis_servers::Sentinels;

use crate::random::Random;
use crate::redis::failover::{Effect, Fault, PATIENCE, PAUSE, conclude, take_down};
use crate::redis::load::{Lane, Load, until};
use crate::redis::stage::{blocking, use_mailboxes};
use crate::report::{NotRun, Outcome};
use crate::scene::wait;

/// Until servers that were harmed are whole again.
const HEALING: Duration = Duration::from_secs(30);
/// Until everybody has what the master answered before.
const IN_TRANSIT: Duration = Duration::from_millis(50);
/// Mailboxes, all of which are under attack.
const MAILBOXES: usize = 2;

/// Runs it: a kill, a pause, and so on.
pub(crate) async fn run(seed: u64, faults: u64) -> Result<Outcome, NotRun> {
    let servers = blocking(Sentinels::start);
    let mut servers = servers.map_err(|error| NotRun(format!("Redis Sentinel: {error}")))?;
    let mut outcome = Outcome::start(None);
    let mut worst = Effect::default();
    let done = all(&mut servers, seed, faults, &mut outcome, &mut worst).await;
    conclude(outcome, &worst, done)
}

async fn all(
    servers: &mut Sentinels,
    seed: u64,
    faults: u64,
    outcome: &mut Outcome,
    worst: &mut Effect,
) -> Result<(), String> {
    let url = format!("redis+sentinel://{}/{}", servers.seeds(), servers.master_name());
    let lane = |number: usize| Lane {
        name: Name::parse(&format!("box-{number}")).expect("a valid name"),
        producers: 2,
        consumers: 2,
        rests: number > 0,
    };
    let load = use_mailboxes(&url, (0..MAILBOXES).map(lane).collect(), None, seed).await?;
    let mut random = Random::of(seed, 0);
    while outcome.goes_on(faults) {
        wait(random.millis(100, 600)).await;
        let fault = if outcome.faults.is_multiple_of(2) { Fault::Kill } else { Fault::Pause };
        let effect = one(servers, &load, fault).await?;
        worst.add(&effect);
        take_down(&load, fault, &effect, effect.violations(fault), outcome);
        load.flow().await?;
    }
    load.end().await;
    Ok(())
}

/// One fault, until everything is as before.
async fn one(servers: &mut Sentinels, load: &Load, fault: Fault) -> Result<Effect, String> {
    heal(servers)?;
    let master = blocking(|| servers.master()).ok_or("no sentinel knows the master")?;
    let open = {
        let mut book = load.book();
        book.mark();
        book.in_flight(MAILBOXES)
    };
    load.rest(true);
    let start = Instant::now();
    match fault {
        Fault::Kill => blocking(|| servers.data_nodes_mut()[master].kill()),
        _ => blocking(|| servers.data_nodes()[master].pause()),
    }
    // Answers that were on their way.
    wait(IN_TRANSIT).await;
    let open = open + load.book().deliveries(MAILBOXES);
    let is_replaced = || blocking(|| servers.master()).is_some_and(|other| other != master);
    if !until(PATIENCE, is_replaced).await {
        return Err(format!("{fault}: no other master after {PATIENCE:?}"));
    }
    let elected = start.elapsed();
    let since = start + elected;
    let is_served = || {
        let book = load.book();
        (0..MAILBOXES).all(|mailbox| book.is_served_since(mailbox, since))
    };
    if !until(PATIENCE, is_served).await {
        return Err(format!("{fault}: no service {PATIENCE:?} after another was master"));
    }
    let served = Instant::now();
    let began = load.book().deliveries(MAILBOXES);
    load.rest(false);
    if fault == Fault::Pause {
        tokio::time::sleep_until((start + PAUSE).into()).await;
    }
    let open_again = load.book().in_flight(MAILBOXES);
    match fault {
        Fault::Kill => blocking(|| servers.data_nodes_mut()[master].restart())
            .map_err(|error| error.to_string())?,
        _ => servers.data_nodes()[master].resume(),
    }
    heal(servers)?;
    load.flow().await?;
    let healed = Instant::now();
    let gap = |mailbox, from, to| load.book().longest_gap(mailbox, from, to);
    let resumed = (0..MAILBOXES).map(|mailbox| gap(mailbox, start, served).1 - start).max();
    let healing = (0..MAILBOXES).map(|mailbox| gap(mailbox, served, healed).0).max();
    load.settle().await;
    let counts = load.book().counts();
    Ok(Effect {
        elected: Some(elected),
        resumed: resumed.unwrap_or_default(),
        healing: healing.unwrap_or_default(),
        elsewhere: Duration::ZERO,
        // Sentinels cut connections once more, whenever they give a server another role.
        in_flight: (open + began + open_again).max(counts.acks_in_doubt),
        counts,
    })
}

fn heal(servers: &Sentinels) -> Result<(), String> {
    blocking(|| servers.wait_until_healthy(HEALING)).map_err(|error| error.to_string())
}

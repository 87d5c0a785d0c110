//! Masters are killed, paused, or cut off from the other servers while clients reach everybody, all
//! under load, until their replica has taken over; and replicas are paused. Nothing that was
//! answered may be lost or come back, service must go on soon, and in about the same order.
//!
//! A master that is cut off is the dangerous case: until it notices it goes on taking messages,
//! none of which will be left.

use std::fmt;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::redis::Bug;
use crate::redis::book::Counts;
use crate::redis::load::{Lane, Load, until};
use crate::redis::namespace::Cut;
use crate::redis::stage::{NODE_TIMEOUT, Place, Stage, ask, blocking};
use crate::report::{NotRun, Outcome, say};
use crate::scene::wait;
use crate::symptom::Symptom;
use crate::violation::Violation;

/// Until a send is answered again.
const OUTAGE: Duration = NODE_TIMEOUT.saturating_add(Duration::from_secs(2));
/// What of it is ours: servers that need nearly all of that time to elect one of them are theirs.
const OWN_SHARE: Duration = Duration::from_millis(300);
/// How long sends elsewhere may have to wait: between the moment when a master counts as dead and
/// that when another takes over, all servers refuse everything.
const ELSEWHERE: Duration = OUTAGE.saturating_sub(NODE_TIMEOUT);
/// Most that a message may come behind later ones of the same producer.
const DEPTH: u64 = 32;
/// Until somebody must have become master, and service must be back, whatever the bound is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
/// How long a master is paused.
pub(crate) const PAUSE: Duration = Duration::from_secs(5);
/// How long a master is cut off: until its replica has long been elected.
const PARTITION: Duration = Duration::from_secs(4);
/// How long a replica is paused at least: longer than a send waits for it.
const STALL: Duration = Duration::from_millis(1500);
/// Mailboxes on the server that is attacked. The one behind them is elsewhere.
const ATTACKED: usize = 2;
/// Node `n` and node `n + PAIRED` are master and replica, or the other way round.
const PAIRED: usize = 3;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A master is killed (SIGKILL), and comes back empty.
    Kill,
    /// A master stands still for a while.
    Pause,
    /// A master is cut off from all other servers, not from clients.
    Partition,
    /// A replica stands still for a while.
    Stall,
}

impl Fault {
    /// What it is called on the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Partition => "partition",
            Self::Stall => "stall",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill -9 of a master",
            Self::Pause => "pause of a master",
            Self::Partition => "partition of a master",
            Self::Stall => "pause of a replica",
        })
    }
}

/// What came of one fault, or the worst of several.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// Until another was master, if that was to be.
    pub(crate) elected: Option<Duration>,
    /// Until sends to the mailboxes under attack were answered again.
    pub(crate) resumed: Duration,
    /// Longest that they were not answered while the servers came together again.
    pub(crate) healing: Duration,
    /// Longest that sends to the other mailbox were not answered.
    pub(crate) elsewhere: Duration,
    /// Sends and deliveries that were open when the fault began or ended, or began before service
    /// was back.
    pub(crate) in_flight: u64,
    pub(crate) counts: Counts,
}

impl Effect {
    pub(crate) fn add(&mut self, other: &Self) {
        self.elected = self.elected.max(other.elected);
        self.resumed = self.resumed.max(other.resumed);
        self.healing = self.healing.max(other.healing);
        self.elsewhere = self.elsewhere.max(other.elsewhere);
        self.in_flight += other.in_flight;
        self.counts.add(&other.counts);
    }

    /// What of it must not be.
    pub(crate) fn violations(&self, fault: Fault) -> Vec<Violation> {
        let mut found = Vec::new();
        let elected = self.elected.unwrap_or_default();
        for (what, time, limit) in [
            ("sends are answered again", self.resumed, OUTAGE.max(elected + OWN_SHARE)),
            ("sends are answered while servers come together", self.healing, OUTAGE),
            ("sends to another server are answered", self.elsewhere, ELSEWHERE),
        ] {
            if time > limit {
                let text = format!("{fault}: {what}: {:.2} s", time.as_secs_f64());
                found.push(Violation::Stuck(text));
            }
        }
        if self.counts.depth > DEPTH {
            found.push(Violation::OutOfOrder(self.counts.depth));
        }
        if self.counts.duplicates > self.in_flight {
            found.push(Violation::Repeated(self.counts.duplicates, self.in_flight));
        }
        if self.counts.sends_in_doubt > 0 {
            let text = format!("{fault}: {} sends gave up", self.counts.sends_in_doubt);
            found.push(Violation::Failure(text));
        }
        found
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(elected) = self.elected {
            write!(f, "elected {:.2} s, ", elected.as_secs_f64())?;
        }
        write!(
            f,
            "resumed {:.2} s, healing {:.2} s, elsewhere {:.2} s, in flight {}, {}",
            self.resumed.as_secs_f64(),
            self.healing.as_secs_f64(),
            self.elsewhere.as_secs_f64(),
            self.in_flight,
            self.counts
        )
    }
}

/// Runs it.
pub(crate) async fn run(
    stage: &mut Stage,
    fault: Fault,
    faults: u64,
    planted: Option<(Bug, Symptom)>,
) -> Result<Outcome, NotRun> {
    let mut outcome = Outcome::start(planted.map(|(_, symptom)| symptom));
    let bug = planted.map(|(bug, _)| bug);
    let mut worst = Effect::default();
    let done = all(stage, fault, faults, bug, &mut outcome, &mut worst).await;
    conclude(outcome, &worst, done)
}

/// What came of all faults.
pub(crate) fn conclude(
    mut outcome: Outcome,
    worst: &Effect,
    done: Result<(), String>,
) -> Result<Outcome, NotRun> {
    outcome.remark = Some(format!("longest times, all counts: {worst}"));
    match done {
        Ok(()) => Ok(outcome.end()),
        Err(why) => outcome.obstructed(NotRun(why)),
    }
}

async fn all(
    stage: &mut Stage,
    fault: Fault,
    faults: u64,
    bug: Option<Bug>,
    outcome: &mut Outcome,
    worst: &mut Effect,
) -> Result<(), String> {
    stage.heal()?;
    let first = stage.place(|_, _| true)?;
    let attacked = stage.master_of(first.slot);
    let second = stage.place(|stage, slot| stage.master_of(slot) == attacked)?;
    let other = stage.place(|stage, slot| stage.master_of(slot) != attacked)?;
    let lane = |place: &Place, many, rests| {
        let (producers, consumers) = (many, many);
        Lane { name: place.name.clone(), producers, consumers, rests }
    };
    let lanes = vec![lane(&first, 2, false), lane(&second, 2, true), lane(&other, 1, false)];
    let load = stage.load(lanes, bug).await?;
    let mut random = Random::of(stage.seed, u64::from(first.slot));
    while outcome.goes_on(faults) {
        wait(random.millis(100, 600)).await;
        let effect = one(stage, &load, fault, first.slot).await?;
        let violations = if bug.is_none() { effect.violations(fault) } else { Vec::new() };
        worst.add(&effect);
        take_down(&load, fault, &effect, violations, outcome);
        load.flow().await?;
    }
    load.end().await;
    Ok(())
}

/// Adds what came of one fault to the rest.
pub(crate) fn take_down(
    load: &Load,
    fault: Fault,
    effect: &Effect,
    violations: Vec<Violation>,
    outcome: &mut Outcome,
) {
    outcome.faults += 1;
    outcome.acked_sends += effect.counts.sends;
    outcome.acked_deletes += effect.counts.acks;
    let mut found = load.book().take_violations();
    let lost = found.iter().filter(|one| matches!(one, Violation::Lost(_))).count();
    found.extend(violations);
    say(&format!("    {fault}: {effect}, lost {lost}"));
    outcome.take_all(found);
}

/// One fault, until everything is as before.
async fn one(stage: &mut Stage, load: &Load, fault: Fault, slot: u16) -> Result<Effect, String> {
    stage.heal()?;
    let master = stage.master_of(slot).ok_or("no master has the mailbox")?;
    let open = {
        let mut book = load.book();
        book.mark();
        book.in_flight(ATTACKED)
    };
    load.rest(true);
    let start = Instant::now();
    let harm = Harm::inflict(stage, fault, master)?;
    let is_replaced = || stage.master_of(slot).is_some_and(|other| other != master);
    let elected = match fault {
        Fault::Stall => None,
        _ if until(PATIENCE, is_replaced).await => Some(start.elapsed()),
        _ => {
            let replica = stage.node(partner(master));
            let (address, log) = (replica.address(), replica.log());
            let why = format!("{fault}: no other master after {PATIENCE:?}");
            return Err(format!("{why}; log of {address}:\n{log}"));
        }
    };
    let since = start + elected.unwrap_or(STALL);
    let is_served = || {
        let book = load.book();
        (0..ATTACKED).all(|mailbox| book.is_served_since(mailbox, since))
    };
    if !until(PATIENCE, is_served).await {
        return Err(format!("{fault}: no service {:?} after another was master", PATIENCE));
    }
    let served = Instant::now();
    let began = load.book().deliveries(ATTACKED);
    load.rest(false);
    harm.last(start).await;
    let open_again = load.book().in_flight(ATTACKED);
    harm.undo(stage)?;
    stage.heal()?;
    load.flow().await?;
    let healed = Instant::now();
    let gap = |mailbox, from, to| load.book().longest_gap(mailbox, from, to);
    let attacked = |from, to| (0..ATTACKED).map(move |mailbox| gap(mailbox, from, to));
    let resumed = attacked(start, served).map(|(_, end)| end - start).max();
    let healing = attacked(served, healed).map(|(gap, _)| gap).max();
    let (elsewhere, _) = gap(ATTACKED, start, healed);
    load.settle().await;
    let counts = load.book().counts();
    Ok(Effect {
        elected,
        resumed: resumed.unwrap_or_default(),
        healing: healing.unwrap_or_default(),
        elsewhere,
        // What could not be acknowledged for sure was in flight too, whenever it was received.
        in_flight: (open + began + open_again).max(counts.acks_in_doubt),
        counts,
    })
}

/// The replica of a master.
fn partner(master: usize) -> usize {
    (master + PAIRED) % (2 * PAIRED)
}

/// A fault that lasts.
#[derive(Debug)]
enum Harm {
    Killed(usize),
    Paused(usize, Duration),
    CutOff(usize, Cut),
}

impl Harm {
    fn inflict(stage: &mut Stage, fault: Fault, master: usize) -> Result<Self, String> {
        match fault {
            Fault::Kill => {
                blocking(|| stage.cluster.nodes_mut()[master].kill());
                Ok(Self::Killed(master))
            }
            Fault::Pause => {
                blocking(|| stage.node(master).pause());
                Ok(Self::Paused(master, PAUSE))
            }
            Fault::Stall => {
                let replica = partner(master);
                blocking(|| stage.node(replica).pause());
                Ok(Self::Paused(replica, STALL))
            }
            Fault::Partition => {
                let cut = blocking(|| Cut::off(stage.node(master).host()));
                Ok(Self::CutOff(master, cut.map_err(|error| error.to_string())?))
            }
        }
    }

    /// Waits until it has lasted long enough.
    async fn last(&self, start: Instant) {
        let long = match self {
            Self::Killed(_) => Duration::ZERO,
            Self::Paused(_, long) => *long,
            Self::CutOff(..) => PARTITION,
        };
        tokio::time::sleep_until((start + long).into()).await;
    }

    fn undo(self, stage: &mut Stage) -> Result<(), String> {
        match self {
            Self::Killed(node) => {
                let restarted = blocking(|| stage.cluster.nodes_mut()[node].restart());
                restarted.map_err(|error| error.to_string())?;
            }
            Self::Paused(node, _) => stage.node(node).resume(),
            Self::CutOff(node, cut) => {
                // If it knew what the others know it would not be master any more.
                let said: String = ask(stage.node(node), &["INFO", "replication"])?;
                if !said.contains("role:master") {
                    return Err("the master that was cut off has heard of the others".to_owned());
                }
                blocking(|| drop(cut));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is just good enough, changed.
    fn violations(change: fn(&mut Effect)) -> Vec<Violation> {
        let mut effect = Effect {
            elected: Some(OUTAGE - OWN_SHARE),
            resumed: OUTAGE,
            healing: OUTAGE,
            elsewhere: ELSEWHERE,
            in_flight: 5,
            counts: Counts { duplicates: 5, depth: DEPTH, ..Counts::default() },
        };
        change(&mut effect);
        effect.violations(Fault::Kill)
    }

    #[test]
    fn an_effect_must_be_short_in_order_and_not_repeated() {
        const MOMENT: Duration = Duration::from_millis(1);
        assert_eq!(violations(|_| {}), []);
        let changes: [fn(&mut Effect); 6] = [
            |effect| effect.resumed += MOMENT,
            |effect| effect.healing += MOMENT,
            |effect| effect.elsewhere += MOMENT,
            |effect| effect.counts.depth += 1,
            |effect| effect.counts.duplicates += 1,
            |effect| effect.counts.sends_in_doubt += 1,
        ];
        for change in changes {
            assert_eq!(violations(change).len(), 1);
        }
    }

    #[test]
    fn servers_that_take_longer_to_elect_one_give_us_no_more_time_of_our_own() {
        const LATE: Duration = Duration::from_secs(4);
        let late = |effect: &mut Effect| {
            (effect.elected, effect.resumed) = (Some(LATE), LATE + OWN_SHARE);
        };
        assert_eq!(violations(late), []);
        let later = |effect: &mut Effect| {
            let resumed = LATE + OWN_SHARE + Duration::from_millis(1);
            (effect.elected, effect.resumed) = (Some(LATE), resumed);
        };
        assert_eq!(violations(later).len(), 1);
    }
}

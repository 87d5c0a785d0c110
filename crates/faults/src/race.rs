//! Many processes race for the messages of one inbox. Each message must be taken by one of them,
//! once: leases are so long that none comes back; and none may be left.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mailbox::Outgoing;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinSet;

use crate::child::{Orders, Role};
use crate::letters::mailbox_of;
use crate::report::{NotRun, Outcome};
use crate::scene::{Folder, Scene};
use crate::subject::Setup;
use crate::violation::Violation;
use crate::worker::PATIENCE;

/// Processes that race.
const RACERS: usize = 8;
/// Messages of one race.
const FILES: u64 = 50_000;
/// Messages of one race with a planted bug, which shows itself at once or not at all.
const FEW: u64 = 250;
/// Messages of one send.
const BATCH: u64 = 250;
/// How long a message stays with whoever took it: longer than any race.
pub(crate) const LEASE: Duration = Duration::from_secs(3600);
/// How long a race may take.
const RACE: Duration = Duration::from_secs(120);

/// What a racer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// It can begin.
    Ready,
    /// It was handed this message.
    Took {
        /// The message.
        number: u64,
        /// What it got to settle it.
        handle: String,
    },
    /// It has acknowledged this message.
    Acked(u64),
    /// Something that must not fail did.
    Failed(String),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::Took { number, handle } => write!(f, "took {number} {handle}"),
            Self::Acked(number) => write!(f, "acked {number}"),
            Self::Failed(why) => write!(f, "failed {}", why.replace(['\n', '\r'], " ")),
        }
    }
}

impl Report {
    fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "ready" => Self::Ready,
            "took" => {
                let (number, handle) = rest.split_once(' ')?;
                Self::Took { number: number.parse().ok()?, handle: handle.to_owned() }
            }
            "acked" => Self::Acked(rest.parse().ok()?),
            "failed" => Self::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

/// The message with this number: as text, for people who look.
fn outgoing(number: u64) -> Outgoing {
    Outgoing::new(Bytes::from(number.to_string()))
}

/// Which message this is.
pub(crate) fn number_of(payload: &Bytes) -> Option<u64> {
    std::str::from_utf8(payload).ok()?.parse().ok()
}

/// Runs it, until this many messages were raced for.
pub(crate) async fn run(scene: &Scene, files: u64) -> Result<Outcome, NotRun> {
    let mut outcome = scene.outcome();
    let most = if scene.is_surprised() { FILES } else { FEW };
    let mut time = Duration::ZERO;
    while outcome.goes_on(files) {
        let count = most.min(files - outcome.faults);
        match one_race(scene, count, &mut outcome).await {
            Ok(took) => time += took,
            Err(why) => return outcome.obstructed(NotRun(why)),
        }
    }
    if !time.is_zero() {
        let rate = outcome.acked_deletes as f64 / time.as_secs_f64();
        let rate = format!("{RACERS} processes, {rate:.0} taken and acknowledged per second");
        outcome.remark = Some(rate);
    }
    Ok(outcome.end())
}

/// One inbox, filled and raced for; returns how long the race took.
async fn one_race(scene: &Scene, count: u64, outcome: &mut Outcome) -> Result<Duration, String> {
    let folder = Folder::new(&std::env::temp_dir()).map_err(|error| error.to_string())?;
    let setup = Setup::directory(false, true, scene.bug());
    let failed = |error: mailbox::Error| format!("{error:#}");
    let backend = setup.open(folder.path()).await.map_err(failed)?;
    for first in (0..count).step_by(BATCH as usize) {
        let batch = (first..count.min(first + BATCH)).map(outgoing).collect();
        for result in backend.send(&mailbox_of(0), batch).await.map_err(failed)? {
            result.map_err(failed)?;
            outcome.acked_sends += 1;
        }
    }
    let mut racers = Vec::new();
    for _ in 0..RACERS {
        racers.push(Racer::start(scene, folder.path(), setup).map_err(|error| error.to_string())?);
    }
    for racer in &mut racers {
        racer.ready().await?;
    }
    let started = Instant::now();
    let mut racing = JoinSet::new();
    for racer in racers {
        racing.spawn(racer.race(count));
    }
    let mut result = Race::default();
    while let Some(reports) = racing.join_next().await {
        result.add(reports.map_err(|error| error.to_string())??);
    }
    let time = started.elapsed();
    outcome.faults += count;
    outcome.acked_deletes += result.acked.len() as u64;
    let stats = backend.stats(&mailbox_of(0)).await.map_err(failed)?;
    let left = stats.live() + stats.dead + stats.set_aside;
    if left > 0 {
        result.wrong.push(Violation::Failure(format!("{left} files are left: {stats:?}")));
    }
    backend.close().await.map_err(failed)?;
    outcome.take_all(result.judged(count));
    Ok(time)
}

/// What has come of a race.
#[derive(Debug, Default)]
struct Race {
    taken: HashMap<u64, usize>,
    handles: HashSet<String>,
    acked: HashSet<u64>,
    wrong: Vec<Violation>,
}

impl Race {
    /// Adds what one racer has told.
    fn add(&mut self, reports: Vec<Report>) {
        for report in reports {
            match report {
                Report::Ready => {}
                Report::Took { number, handle } => {
                    *self.taken.entry(number).or_default() += 1;
                    if !self.handles.insert(handle) {
                        self.wrong.push(Violation::TakenTwice(number));
                    }
                }
                Report::Acked(number) => {
                    if !self.acked.insert(number) {
                        self.wrong.push(Violation::BackAgain(number));
                    }
                }
                Report::Failed(why) => self.wrong.push(Violation::Failure(why)),
            }
        }
    }

    /// What is wrong, if these are all the messages there were.
    fn judged(mut self, count: u64) -> Vec<Violation> {
        for number in 0..count {
            match self.taken.remove(&number) {
                None => self.wrong.push(Violation::Lost(number)),
                Some(1) if self.acked.contains(&number) => {}
                Some(1) => {
                    let what = format!("message {number} was taken, and not acknowledged");
                    self.wrong.push(Violation::Failure(what));
                }
                Some(_) => self.wrong.push(Violation::TakenTwice(number)),
            }
        }
        self.wrong.extend(self.taken.into_keys().map(Violation::Phantom));
        self.wrong
    }
}

/// A process that races.
#[derive(Debug)]
struct Racer {
    // Held so that it ends with this value.
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Racer {
    fn start(scene: &Scene, dir: &Path, setup: Setup) -> io::Result<Self> {
        let (dir, seed, role) = (dir.to_owned(), scene.seed, Role::Racer);
        let mut command = scene.command(&Orders { dir, seed, first: 0, role, setup });
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().expect("standard input is a pipe");
        let output = child.stdout.take().expect("standard output is a pipe");
        Ok(Self { _child: child, input, output: BufReader::new(output).lines() })
    }

    async fn ready(&mut self) -> Result<(), String> {
        match tokio::time::timeout(PATIENCE, self.output.next_line()).await {
            Ok(Ok(Some(line))) if Report::parse(&line) == Some(Report::Ready) => Ok(()),
            other => Err(format!("a racer does not begin: {other:?}")),
        }
    }

    /// Starts it, and listens until it has ended. It can tell no more than all of `count` allow,
    /// with one bug or another.
    async fn race(mut self, count: u64) -> Result<Vec<Report>, String> {
        let failed = |error: io::Error| format!("a racer: {error}");
        self.input.write_all(b"g").await.map_err(failed)?;
        self.input.flush().await.map_err(failed)?;
        let most = 4 * count + 1000;
        let mut reports = Vec::new();
        let listening = async {
            while let Some(line) = self.output.next_line().await.map_err(failed)? {
                let report = Report::parse(&line);
                reports.push(report.ok_or_else(|| format!("a racer said {line:?}"))?);
                if reports.len() as u64 > most {
                    return Err("a racer takes more than there is".to_owned());
                }
            }
            Ok(())
        };
        match tokio::time::timeout(RACE, listening).await {
            Ok(Ok(())) => Ok(reports),
            Ok(Err(why)) => Err(why),
            Err(_) => Ok([reports, vec![Report::Failed("not over in time".to_owned())]].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(number: u64, handle: &str) -> Report {
        Report::Took { number, handle: handle.to_owned() }
    }

    fn judged(racers: &[&[Report]], count: u64) -> Vec<Violation> {
        let mut result = Race::default();
        for reports in racers {
            result.add(reports.to_vec());
        }
        result.judged(count)
    }

    #[test]
    fn every_report_is_read_back_as_it_was_written() {
        let failed = Report::Failed("no disk".to_owned());
        for report in [Report::Ready, took(7, "00"), Report::Acked(7), failed] {
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
        for line in ["", "took", "took 1", "acked x", "else"] {
            assert_eq!(Report::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_message_is_one_racers_and_only_once() {
        let first = [took(0, "a"), Report::Acked(0)];
        let second = [took(1, "b"), Report::Acked(1)];
        assert_eq!(judged(&[&first, &second], 2), []);
        assert_eq!(judged(&[&first], 2), [Violation::Lost(1)]);
        assert_eq!(judged(&[&first, &second], 1), [Violation::Phantom(1)]);
        let also = [took(0, "c")];
        assert_eq!(judged(&[&first, &also], 1), [Violation::TakenTwice(0)]);
        let same = [took(1, "a"), Report::Acked(1)];
        assert_eq!(judged(&[&first, &same], 2), [Violation::TakenTwice(1)]);
        assert!(matches!(judged(&[&first[..1]], 1)[..], [Violation::Failure(_)]));
        let again = [Report::Acked(0)];
        assert_eq!(judged(&[&first, &again], 1), [Violation::BackAgain(0)]);
    }
}

//! Looking at mailboxes, and changing them as a whole.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mailbox_core::{DeadReason, Phase, Policy, Refusal, Totals};
use redis::Value;
use tokio::time::Instant;

use crate::backend::{Death, Peek, Record, Selection, Stats};
use crate::backends::redis::Inner;
use crate::backends::redis::answers::{Answer, count, unexpected};
use crate::backends::redis::keys;
use crate::backends::redis::letter::Kept;
use crate::backends::redis::rules;
use crate::backends::redis::scripts::{Argument, Job, Order};
use crate::backends::redis::send::is_true;
use crate::backends::redis::survey::text;
use crate::backends::redis::target::Node;
use crate::backends::redis::trouble::Trouble;
use crate::error::{Error, ErrorKind, Result};
use crate::id::MessageId;
use crate::name::Name;

/// Keys that a server looks at in one step of a list.
const LISTED: u32 = 1_000;
/// Before servers that do not answer are asked again.
const BEFORE_LISTING_AGAIN: Duration = Duration::from_millis(50);
/// Mailboxes are not counted more often than this.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The mailboxes that this process has made, as far as it knows.
#[derive(Debug, Default)]
pub(super) struct Made {
    names: BTreeSet<Name>,
    /// When they were last counted where they are.
    counted: Option<Instant>,
}

impl Inner {
    /// Runs a script that only reads, and gives its answer.
    async fn look(&self, name: &Name, job: Job, arguments: &[Argument]) -> Result<Answer> {
        let keys = self.keys(name);
        let order = |_: Option<Duration>| {
            let mut all = self.preamble();
            all.extend_from_slice(arguments);
            Order::script(job, &keys, all)
        };
        let answer = self.client.call(self.reading(&keys), order).await;
        Answer::new(answer.map_err(|error| error.with_mailbox(name))?)
    }

    /// Runs a script that changes something; what is in doubt is not tried again.
    async fn change(&self, name: &Name, job: Job, arguments: &[Argument]) -> Result<Value> {
        let keys = self.keys(name);
        let mut call = self.writing(&keys);
        call.is_repeatable = false;
        let order = |_: Option<Duration>| {
            let mut all = self.preamble();
            all.extend_from_slice(arguments);
            Order::script(job, &keys, all)
        };
        let answer = self.client.call(call, order).await;
        answer.map_err(|error| error.with_mailbox(name))
    }

    pub(super) async fn stats(&self, name: &Name) -> Result<Stats> {
        let mut answer = self.look(name, Job::Stats, &[]).await?;
        let present = answer.number()?;
        let mut stats = Stats {
            delayed: answer.number()?,
            ready: answer.number()?,
            invisible: answer.number()?,
            dead: answer.number()?,
            durability: self.config().durability,
            waiters: self.watch.waiters(name),
            ..Stats::default()
        };
        let since = answer.maybe_number()?;
        stats.oldest_age = since.map(|since| self.pace.read(present.saturating_sub(since)));
        stats.dedup_entries = answer.number()?;
        stats.totals = Totals {
            sent: answer.number()?,
            delivered: answer.number()?,
            redelivered: answer.number()?,
            timed_out: answer.number()?,
            acknowledged: answer.number()?,
            dead_lettered: answer.number()?,
            redriven: answer.number()?,
            purged: answer.number()?,
            retention_dropped: answer.number()?,
        };
        stats.expires_in = u64::try_from(answer.signed()?).ok().map(Duration::from_secs);
        self.sweep(name).await;
        Ok(stats)
    }

    /// Clears away a part of what others leave behind.
    async fn sweep(&self, name: &Name) {
        if let Err(error) = self.look(name, Job::Sweep, &[]).await {
            tracing::debug!(mailbox = %name, %error, "redis: nothing was cleared away");
        }
    }

    pub(super) async fn peek(&self, name: &Name, request: &Peek) -> Result<Vec<Record>> {
        let arguments = match request {
            Peek::Live { limit } => vec!["live".into(), limit.to_string().into()],
            Peek::Dead { after, limit } => vec![
                "dead".into(),
                limit.to_string().into(),
                after.map_or_else(|| "-inf".to_owned(), |after| after.to_string()).into(),
            ],
            Peek::These(ids) => std::iter::once("these".into())
                .chain(ids.iter().map(|id| Argument::from(id.to_string())))
                .collect(),
        };
        let mut answer = self.look(name, Job::Peek, &arguments).await?;
        let present = answer.number()?;
        let mut records = Vec::with_capacity(answer.left() / 12);
        while !answer.is_empty() {
            records.push(self.read_record(&mut answer, present)?);
        }
        Ok(records)
    }

    fn read_record(&self, answer: &mut Answer, present: u64) -> Result<Record> {
        let (id, phase) = (answer.text()?, answer.text()?);
        let delivery_count = u32::try_from(answer.number()?).unwrap_or(u32::MAX);
        let due = answer.number()?;
        let kept = Kept {
            payload: answer.bytes()?.into(),
            enqueued: answer.text()?,
            reply_to: answer.optional()?,
            beside: answer.bytes()?,
        };
        let last_error = answer.optional()?;
        let (reason, died, order) = (answer.text()?, answer.number()?, answer.number()?);
        let wall = self.wall();
        let phase = match phase.as_str() {
            "delayed" => Phase::Delayed,
            "ready" => Phase::Ready,
            "invisible" => Phase::Invisible,
            "dead" => Phase::Dead,
            _ => return Err(unexpected("a state that messages do not have")),
        };
        let reason = DeadReason::ALL.into_iter().find(|known| known.as_str() == reason);
        Ok(Record {
            id: MessageId::from_text(&id),
            // What is damaged is shown as it is: whoever looks wants to see that.
            letter: kept.open(wall).0,
            phase,
            delivery_count,
            receivable_in: self.pace.read(due.saturating_sub(present)),
            last_error,
            death: (phase == Phase::Dead).then(|| Death {
                reason: reason.unwrap_or(DeadReason::Rejected),
                at: wall.before(self.pace.read(present.saturating_sub(died))),
                order,
            }),
        })
    }

    pub(super) async fn purge(&self, name: &Name) -> Result<u64> {
        count(&self.change(name, Job::Purge, &["".into()]).await?)
    }

    /// Puts dead letters back in line, or deletes them.
    pub(super) async fn dead(&self, name: &Name, word: &str, which: &Selection) -> Result<u64> {
        let (reason, most) = match which {
            Selection::All => ("", u64::MAX),
            Selection::Oldest(most) => ("", *most),
            Selection::Reason(reason) => (reason.as_str(), u64::MAX),
            Selection::These(ids) if ids.is_empty() => return Ok(0),
            Selection::These(ids) => {
                let these = [word.into(), "these".into()].into_iter();
                let ids = ids.iter().map(|id| Argument::from(id.to_string()));
                let arguments: Vec<Argument> = these.chain(ids).collect();
                let answer = self.change(name, Job::Redrive, &arguments).await?;
                return read_dead(name, 0, &mut Answer::new(answer)?).map(|(done, _)| done);
            }
        };
        // All there are now: what dies meanwhile is not meant.
        let (mut done, mut behind, mut up_to) = (0, "-inf".to_owned(), "+inf".to_owned());
        while done < most {
            let left = (most - done).min(u64::from(u32::MAX)).to_string();
            let arguments =
                [word, "some", reason, &left, &behind, &up_to].map(Argument::from).to_vec();
            let answer = self.change(name, Job::Redrive, &arguments).await?;
            let mut answer = Answer::new(answer)?;
            let is_full;
            (done, is_full) = read_dead(name, done, &mut answer)?;
            behind = answer.text()?;
            if up_to == "+inf" {
                up_to = answer.text()?;
            }
            if behind.is_empty() || is_full {
                break;
            }
        }
        Ok(done)
    }

    pub(super) async fn configure(&self, name: &Name, policy: &Policy) -> Result<()> {
        self.check_room(name).await?;
        let keys = self.keys(name);
        let order = |_: Option<Duration>| {
            let mut command = redis::cmd("HSET");
            command.arg(keys.rules());
            for (field, value) in rules::FIELDS.iter().zip(rules::values(policy)) {
                command.arg(*field).arg(value);
            }
            Order::plain(command)
        };
        let set = self.client.call(self.writing(&keys), order).await;
        set.map(drop).map_err(|error| error.with_mailbox(name))
    }

    pub(super) async fn policy(&self, name: &Name) -> Result<Policy> {
        let keys = self.keys(name);
        let order = |_: Option<Duration>| {
            let mut command = redis::cmd("HMGET");
            command.arg(keys.rules()).arg(rules::FIELDS.as_slice());
            Order::plain(command)
        };
        let answer = self.client.call(self.reading(&keys), order).await;
        let Value::Array(values) = answer.map_err(|error| error.with_mailbox(name))? else {
            return Err(unexpected("no rules").with_mailbox(name));
        };
        if values.iter().all(|value| matches!(value, Value::Nil)) {
            return Ok(self.config().policy.clone());
        }
        let values: Vec<String> =
            values.into_iter().map(|value| text(value).unwrap_or_default()).collect();
        let values = values.try_into().map_err(|_| unexpected("fewer rules"))?;
        rules::read(&values).map_err(|error| error.with_mailbox(name))
    }

    pub(super) async fn remove(&self, name: &Name) -> Result<bool> {
        let removed = self.change(name, Job::Purge, &["all".into()]).await?;
        self.made.lock().names.remove(name);
        self.watch.end(name);
        Ok(is_true(&removed))
    }

    /// The names behind `after`, at most `limit`: every master is asked for all of its keys.
    pub(super) async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        if self.is_closing.load(Ordering::Acquire) {
            return Err(self.client.is_closed());
        }
        let mut names = BTreeSet::new();
        if limit == 0 {
            return Ok(Vec::new());
        }
        let started = Instant::now();
        loop {
            let tried = Instant::now();
            match self.list_all(after, limit, &mut names).await {
                Ok(()) => break,
                Err(Trouble::NotNow(_) | Trouble::InDoubt(_))
                    if started.elapsed() < self.config().patience =>
                {
                    tokio::time::sleep(BEFORE_LISTING_AGAIN).await;
                    self.client.survey(tried).await;
                }
                Err(trouble) => return Err(trouble.into_error()),
            }
        }
        Ok(names.into_iter().collect())
    }

    async fn list_all(
        &self,
        after: Option<&Name>,
        limit: usize,
        names: &mut BTreeSet<Name>,
    ) -> Result<(), Trouble> {
        for node in self.client.owners() {
            self.list_node(&node, after, limit, names).await?;
        }
        Ok(())
    }

    async fn list_node(
        &self,
        node: &Node,
        after: Option<&Name>,
        limit: usize,
        names: &mut BTreeSet<Name>,
    ) -> Result<(), Trouble> {
        let link = self.client.link(node);
        let pattern = keys::pattern(&self.config().prefix);
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(LISTED);
            let asked = link.ask(vec![scan]);
            let answers = tokio::time::timeout(self.config().response_timeout, asked).await;
            let answers = answers.map_err(|_| Trouble::silent(node))??;
            let Some(Value::Array(answer)) = answers.into_iter().next() else { return Ok(()) };
            let mut answer = answer.into_iter();
            cursor = answer.next().and_then(text).unwrap_or_else(|| "0".to_owned());
            if let Some(Value::Array(found)) = answer.next() {
                for key in found {
                    let Value::BulkString(key) = key else { continue };
                    let Some(name) = keys::owner(&self.config().prefix, &key) else { continue };
                    if after.is_none_or(|after| name > *after) {
                        names.insert(name);
                    }
                    if names.len() > limit {
                        names.pop_last();
                    }
                }
            }
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    /// Whether there is room for a mailbox that may be new.
    pub(super) async fn check_room(&self, name: &Name) -> Result<()> {
        let most = self.config().max_mailboxes;
        {
            let mut made = self.made.lock();
            if made.names.contains(name) {
                return Ok(());
            }
            if made.names.len() < most {
                made.names.insert(name.clone());
                return Ok(());
            }
            let message = format!("there are {most} mailboxes, the most there may be");
            let refused = Error::new(ErrorKind::Saturated, message).with_mailbox(name);
            if made.counted.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
                return Err(refused);
            }
            made.counted = Some(Instant::now());
        }
        // Others may have removed some, or their time was over: those that are there count.
        let there = self.list(None, most).await?;
        let mut made = self.made.lock();
        made.names = there.into_iter().collect();
        if made.names.len() >= most && !made.names.contains(name) {
            let message = format!("there are {most} mailboxes, the most there may be");
            return Err(Error::new(ErrorKind::Saturated, message).with_mailbox(name));
        }
        made.names.insert(name.clone());
        Ok(())
    }
}

/// How many dead letters were dealt with by now, and whether there is no room for more: an error
/// only if there was none for the first.
fn read_dead(name: &Name, before: u64, answer: &mut Answer) -> Result<(u64, bool)> {
    let refused = answer.text()?;
    let done = before + answer.number()?;
    match (refused.get(..1), refused.get(1..)) {
        (Some("n"), Some(id)) => {
            let message = format!("no dead letter {id:.100}");
            Err(Error::new(ErrorKind::NotFound, message).with_mailbox(name))
        }
        (Some("f"), Some(most)) if done == 0 => {
            let max_size = most.parse().unwrap_or(0);
            Err(Error::refused(Refusal::Full { max_size }, name))
        }
        (Some("f"), _) => Ok((done, true)),
        _ => Ok((done, false)),
    }
}

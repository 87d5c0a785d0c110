//! What has to be true of messages after a connection was cut, and whether it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox_wire::call::{Reply, Request, TopicRequest};
use mailbox_wire::json::{Envelope, SettleBatchRequest, SettleItem, SettleOp, SettleResult};
use mailbox_wire::oap::Frame;

use super::VISIBILITY;
use super::books::{Books, Tally};
use super::stage::Stage;
use crate::rig::{OapClient, receive};

/// What is expected of a message that is not settled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    /// It can be received again before this beat.
    by: u64,
    /// Which of its deliveries that is, if that is known.
    pub(super) attempt: Option<u32>,
    /// It was delivered to somebody who has it until its time is over.
    not_before: Option<Instant>,
    /// That one may have been told too late, and then it was never delivered.
    is_sure: bool,
}

/// What has to be true.
pub(super) struct Claim {
    /// Of which connection.
    pub(super) what: String,
    pub(super) topic: String,
    /// How many frames were heard.
    pub(super) heard: usize,
    /// What was to be said.
    pub(super) said: Vec<Frame>,
    /// Whatever is there can be received before this beat.
    pub(super) by: u64,
    /// These are there.
    pub(super) must: BTreeMap<u64, Expected>,
    /// These may be there.
    pub(super) may: BTreeSet<u64>,
    /// These are not, and never will be.
    pub(super) never: BTreeSet<u64>,
}

impl Expected {
    /// It can be received by then; whether anybody has it is not known.
    pub(super) fn anyhow(by: u64) -> Self {
        Self { by, attempt: None, not_before: None, is_sure: true }
    }

    /// Whoever had it has given it back.
    pub(super) fn at_once(by: u64, attempt: Option<u32>) -> Self {
        Self { attempt, ..Self::anyhow(by) }
    }

    /// Somebody has it who received it after this moment.
    pub(super) fn kept(by: u64, since: Instant, is_sure: bool) -> Self {
        let not_before = Some(since + VISIBILITY);
        Self { attempt: Some(2), not_before, is_sure, ..Self::anyhow(by) }
    }
}

impl Claim {
    /// Looks for the messages until all of them were found, and nothing else is left.
    pub(super) async fn audit(mut self, stage: Arc<Stage>) -> Self {
        let mut helper = stage.helper().await;
        while !self.must.is_empty() || self.left(&mut helper).await > 0 {
            let first = self.must.values().map(|it| it.by).min().unwrap_or(self.by);
            let wait = stage.pulse.until(first).clamp(Duration::from_millis(20), VISIBILITY);
            self.take(&mut helper, &stage, wait).await;
            let now = stage.pulse.now();
            let stranded: Vec<_> = self.must.iter().filter(|(_, it)| it.by < now).collect();
            assert!(stranded.is_empty(), "{}: stranded at {now}: {stranded:?}", self.what);
            let is_over = self.by < now && self.left(&mut helper).await > 0;
            assert!(!is_over, "{}: stranded at {now}, by {}", self.what, self.by);
        }
        stage.helped(helper);
        self
    }

    /// How many messages are there, received or not.
    async fn left(&self, helper: &mut OapClient) -> u64 {
        let topic = TopicRequest { topic: self.topic.clone() };
        match helper.ask(Request::Topic(topic)).await {
            Ok(Reply::Topic(topic)) => topic.stats.ready + topic.stats.invisible,
            // Nobody has ever sent anything to it.
            Err((404, _)) => 0,
            other => panic!("{}: {other:?}", self.what),
        }
    }

    /// Receives what there is, and settles it; how much that was.
    pub(super) async fn take(
        &mut self,
        helper: &mut OapClient,
        stage: &Stage,
        wait: Duration,
    ) -> usize {
        let mut question = receive(&self.topic, 16, 60_000);
        question.max_bytes = Some(8 << 20);
        question.wait_ms = (!wait.is_zero()).then_some(wait.as_millis() as u64);
        let Ok(Reply::Received(received)) = helper.ask(Request::Receive(question)).await else {
            panic!("{}: nobody else notices", self.what)
        };
        let messages = received.messages;
        if messages.is_empty() {
            return 0;
        }
        let now = (Instant::now(), stage.pulse.now());
        messages.iter().for_each(|envelope| self.found(envelope, now, stage));
        let item = |envelope: &Envelope| {
            let receipt_handle = envelope.receipt_handle.clone();
            SettleItem { receipt_handle, ..SettleItem::new(SettleOp::Ack) }
        };
        let items = messages.iter().map(item).collect();
        let asked = helper.ask(Request::SettleBatch(SettleBatchRequest { items })).await;
        let Ok(Reply::SettledBatch(settled)) = asked else { panic!("{asked:?}") };
        assert!(settled.results.iter().all(|it| matches!(it, SettleResult::Settled { .. })));
        messages.len()
    }

    fn found(&mut self, envelope: &Envelope, (at, beat): (Instant, u64), stage: &Stage) {
        let (what, tally) = (&self.what, &stage.books.tally);
        let (number, attempt) = (Books::number(envelope), envelope.attempt);
        assert!(!self.never.contains(&number), "{what}: message {number} came back");
        // From now on it is acknowledged.
        self.never.insert(number);
        let Some(expected) = self.must.remove(&number) else {
            assert!(self.may.remove(&number), "{what}: message {number} is of somebody else");
            return Tally::count(&tally.unknown, 1);
        };
        let is_in_vain = !expected.is_sure && attempt == 1;
        assert!(beat <= expected.by, "{what}: message {number} at {beat}: {expected:?}");
        if is_in_vain {
            return Tally::count(&tally.kept_in_vain, 1);
        }
        if let Some(known) = expected.attempt {
            assert_eq!(attempt, known, "{what}: message {number}: {expected:?}");
            let count = if known == 1 { &tally.given_back } else { &tally.kept };
            Tally::count(count, 1);
        }
        if let Some(not_before) = expected.not_before {
            let early = not_before.saturating_duration_since(at);
            assert!(early.is_zero(), "{what}: message {number} was {early:?} early");
        }
    }
}

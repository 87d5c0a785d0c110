//! One connection that is cut, and what must become of the messages that it had to do with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Envelope, SettleResult};
use mailbox_wire::oap::{APP_PROTO, Frame};
use tokio::time::timeout;

use super::books::{Books, Tally};
use super::claim::{Claim, Expected};
use super::ear::Ear;
use super::plan::{Cut, Inside, Place, Shape, Way};
use super::script::{Does, Kind, Said, Script};
use super::stage::Stage;
use super::{EPSILON, FIT, KIB, ROOM, VISIBILITY};
use crate::rig::{Line, PATIENCE, proto_reply, send};

/// One session, and what has come of it so far.
pub(super) struct Session<'a> {
    stage: &'a Stage,
    cut: Cut,
    topic: String,
    stock: Vec<u64>,
    /// Before anything was received.
    since: Instant,
    /// Received before anything was cut.
    opening: Vec<Envelope>,
    said: Vec<Said>,
    /// So many frames were said in full.
    complete: usize,
    ear: Ear,
}

/// Cuts a connection; what has to be true then.
pub(super) async fn cut(stage: &Arc<Stage>, turn: usize, cut: Cut) -> Claim {
    let mut helper = stage.helper().await;
    let topic = format!("cut-{turn}");
    let (count, len) = cut.kind.stock();
    let mut stock = Vec::new();
    for _ in 0..count {
        let (number, payload) = stage.books.message(len);
        helper.ask(Request::Send(send(&topic, payload))).await.unwrap();
        stock.push(number);
    }
    let since = Instant::now();
    let (mut line, opening, said) = begin(stage, turn, &topic, cut).await;
    let mut session = Session {
        stage,
        cut,
        topic,
        stock,
        since,
        opening,
        said,
        complete: 0,
        ear: Ear::default(),
    };
    session.say(&mut line).await;
    session.hear(&mut line).await;
    // Whoever waits gets something at this very moment.
    let late = (cut.kind == Kind::Waiting).then(|| stage.books.message(100));
    let (number, late) = late.unzip();
    let sending = async {
        if let Some(payload) = late {
            helper.ask(Request::Send(send(&session.topic, payload))).await.unwrap();
        }
    };
    let is_clean = session.is_clean();
    tokio::join!(part(cut.way, line, &mut session.ear, is_clean), sending);
    session.stock.extend(number);
    stage.helped(helper);
    Tally::count(&stage.books.tally.cuts, 1);
    session.claim()
}

/// What a session is if it is not cut.
pub(super) async fn shape(stage: &Arc<Stage>, turn: usize, kind: Kind) -> (Shape, Claim) {
    let place = Place::Said { frames: usize::MAX, inside: Inside::Start, is_patient: false };
    let whole = Cut { kind, place, way: Way::Half };
    let claim = cut(stage, turn, whole).await;
    // A stream says that it ends only to those who do.
    let heard = claim.heard - usize::from(kind == Kind::Stream);
    (Shape { kind, said: claim.said.clone(), heard }, claim)
}

/// Connects, and says and hears what is not cut. What is said then.
async fn begin(
    stage: &Stage,
    turn: usize,
    topic: &str,
    cut: Cut,
) -> (Line, Vec<Envelope>, Vec<Said>) {
    let mut line = stage.line(matches!(cut.place, Place::Heard { .. }).then_some(ROOM)).await;
    let mut script = Script::new(&stage.books, &stage.operator, topic, turn);
    let mut opening = Vec::new();
    if !cut.kind.is_whole() {
        script.open(cut.kind);
        for Said { frame, .. } in &script.said {
            let sealed = line.seal(&encoded(frame));
            line.say(&sealed).await;
        }
        let mut ear = Ear::default();
        let last = &script.said[script.said.len() - 1];
        let corr_id = last.frame.corr_id;
        loop {
            assert!(ear.frame(&mut line).await, "only the client cuts");
            match last.does {
                Does::Streams => opening = ear.streamed(corr_id),
                Does::Receives => opening = ear.received(corr_id).unwrap_or_default(),
                _ => {}
            }
            if opening.len() == cut.kind.opening() {
                break;
            }
        }
    }
    script.said.clear();
    script.write(cut.kind, &opening);
    (line, opening, script.said)
}

/// Ends a connection in this way.
async fn part(way: Way, mut line: Line, ear: &mut Ear, is_clean: bool) {
    match way {
        Way::Hard => line.reset(),
        Way::Soft => line.end(false).await,
        Way::Half => {
            line.end(is_clean).await;
            let rest = async { while ear.frame(&mut line).await {} };
            timeout(PATIENCE, rest).await.expect("whoever asks nothing more is let go");
        }
    }
}

impl Session<'_> {
    /// Says what is to be said.
    async fn say(&mut self, line: &mut Line) {
        let (frames, inside) = match self.cut.place {
            Place::Said { frames, inside, .. } => (frames, inside),
            Place::Heard { .. } => (usize::MAX, Inside::Start),
        };
        self.complete = frames.min(self.said.len());
        let mut bytes = Vec::new();
        for Said { frame, .. } in &self.said[..self.complete] {
            bytes.extend(line.seal(&encoded(frame)));
        }
        let next = self.said.get(frames).filter(|_| inside != Inside::Start);
        if let Some(Said { frame, .. }) = next {
            let plain = encoded(frame);
            let mut sealed = line.seal(&plain);
            // With TLS, about as far.
            let offset = inside.offset(frame.cap.len(), plain.len());
            sealed.truncate(offset * sealed.len() / plain.len());
            bytes.extend(sealed);
        }
        line.say(&bytes).await;
    }

    /// Hears what is to be heard before the cut.
    async fn hear(&mut self, line: &mut Line) {
        match self.cut.place {
            Place::Said { is_patient: true, .. } => {
                while self.unanswered().next().is_some() {
                    assert!(self.ear.frame(line).await, "only the client cuts");
                }
            }
            Place::Said { .. } => {}
            Place::Heard { frames, inside } => {
                for _ in 0..frames {
                    assert!(self.ear.frame(line).await, "only the client cuts");
                }
                self.ear.some(line, inside).await;
            }
        }
    }

    /// Whether the service sees an end, and not half of a record of TLS.
    fn is_clean(&self) -> bool {
        let Place::Said { inside, .. } = self.cut.place else { return true };
        inside == Inside::Start || !self.stage.is_tls()
    }

    /// Whether nothing that was received can have been out of time before the cut.
    fn is_quick(&self) -> bool {
        self.since.elapsed() + EPSILON < VISIBILITY
    }

    /// What was said, is answered without waiting for anything, and was not yet.
    fn unanswered(&self) -> impl Iterator<Item = &Frame> {
        let is_answered = |said: &&Said| match said.does {
            Does::Part | Does::Streams => false,
            Does::Receives => self.cut.kind != Kind::Waiting,
            _ => true,
        };
        let said = self.said[..self.complete].iter().filter(is_answered);
        said.map(|said| &said.frame).filter(|frame| self.ear.answer(frame.corr_id).is_none())
    }

    /// What has to be true from now on.
    fn claim(self) -> Claim {
        if self.cut.way == Way::Half && self.is_clean() {
            let missing: Vec<_> = self.unanswered().map(|frame| frame.corr_id).collect();
            assert!(missing.is_empty(), "{:?}: not answered: {missing:?}", self.cut);
        }
        let by = self.stage.by(VISIBILITY);
        let mut claim = Claim {
            what: format!("{:?} in {}", self.cut, self.topic),
            topic: self.topic.clone(),
            by,
            heard: self.ear.frames(),
            said: Vec::new(),
            must: BTreeMap::new(),
            may: BTreeSet::new(),
            never: BTreeSet::new(),
        };
        for number in &self.stock {
            claim.must.insert(*number, Expected::anyhow(by));
        }
        let at_once = self.stage.by(Duration::ZERO);
        self.claim_said(&mut claim);
        self.claim_heard(&mut claim, at_once);
        self.claim_unheard(&mut claim, at_once);
        claim.said = self.said.into_iter().map(|said| said.frame).collect();
        claim
    }

    /// What was sent, and what was acknowledged.
    fn claim_said(&self, claim: &mut Claim) {
        let by = claim.by;
        let tally = &self.stage.books.tally;
        for (place, Said { frame, does }) in self.said.iter().enumerate() {
            let is_complete = place < self.complete;
            let is_stream = matches!(does, Does::Streams);
            let answer = self.ear.answer(frame.corr_id);
            let is_done = answer.map(|it| it.code == 200 && (is_stream || is_done(&it)));
            assert!(is_complete || is_done.is_none(), "{}: an answer to half a frame", claim.what);
            assert_ne!(is_done, Some(false), "{}: refused", claim.what);
            match does {
                Does::Sends(numbers) if is_done.is_some() => {
                    Tally::count(&tally.accepted, numbers.len());
                    claim.must.extend(numbers.iter().map(|it| (*it, Expected::anyhow(by))));
                }
                Does::Sends(numbers) if is_complete => claim.may.extend(numbers),
                // A frame that was cut short does nothing.
                Does::Sends(numbers) => claim.never.extend(numbers),
                Does::Acks(numbers) if is_complete => {
                    claim.must.retain(|number, _| !numbers.contains(number));
                    if is_done.is_some() {
                        Tally::count(&tally.acknowledged, numbers.len());
                        claim.never.extend(numbers);
                    } else {
                        claim.may.extend(numbers);
                    }
                }
                _ => {}
            }
        }
    }

    /// What was received, and heard of.
    fn claim_heard(&self, claim: &mut Claim, at_once: u64) {
        let mut heard: Vec<(u64, bool)> =
            self.opening.iter().map(|it| (Books::number(it), true)).collect();
        for Said { frame, does } in &self.said {
            match does {
                Does::Receives => {
                    let messages = self.ear.received(frame.corr_id).unwrap_or_default();
                    heard.extend(messages.iter().map(|it| (Books::number(it), true)));
                }
                Does::Streams => {
                    let messages = self.ear.streamed(frame.corr_id);
                    // All of them were taken together: they are the client's when all are out.
                    let is_all = messages.len() == self.stock.len();
                    heard.extend(messages.iter().map(|it| (Books::number(it), is_all)));
                }
                _ => {}
            }
        }
        // What was on its way when something behind it could not leave may be given back too.
        let is_all = self.unanswered().next().is_none() && self.is_clean();
        for (number, is_sure) in heard {
            let Some(expected) = claim.must.get_mut(&number) else { continue };
            if self.cut.kind.is_stream() {
                // It is given back at once, but it counts.
                let is_known = is_sure && self.is_quick();
                *expected = Expected::at_once(at_once, is_known.then_some(2));
            } else {
                *expected = Expected::kept(claim.by, self.since, is_all);
            }
        }
    }

    /// What the client did not read, and cannot have left either.
    fn claim_unheard(&self, claim: &mut Claim, at_once: u64) {
        let is_stream = self.cut.kind == Kind::Stream;
        let is_cut = matches!(self.cut.place, Place::Heard { .. }) && self.cut.way != Way::Half;
        let (count, len) = self.cut.kind.stock();
        if !is_cut || len < 8 * KIB {
            return;
        }
        let mut partly = false;
        for (place, number) in self.stock.iter().enumerate() {
            // Where the answer ends that has it, at least.
            let messages = if self.cut.kind == Kind::Several { place + 1 } else { count };
            let begins = if self.cut.kind == Kind::Several { place * len } else { 0 };
            if messages * len > self.ear.bytes + FIT {
                // Whoever only says that nothing follows may still hear what was on its way; and
                // while the machine was slow it may have been too late anyhow.
                let is_known = (!is_stream || self.cut.way == Way::Hard) && self.is_quick();
                claim.must.insert(*number, Expected::at_once(at_once, is_known.then_some(1)));
                partly |= self.ear.bytes > begins + KIB;
            } else if is_stream {
                let attempt = claim.must[number].attempt;
                claim.must.insert(*number, Expected::at_once(at_once, attempt));
            }
        }
        let is_counted = partly && self.is_quick();
        Tally::count(&self.stage.books.tally.partly, usize::from(is_counted));
    }
}

fn encoded(frame: &Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes).unwrap();
    bytes
}

/// Whether an answer says that all of it was done.
fn is_done(answer: &Frame) -> bool {
    if answer.app != APP_PROTO {
        return true;
    }
    match proto_reply(answer) {
        Ok(Reply::SettledBatch(settled)) => {
            settled.results.iter().all(|it| matches!(it, SettleResult::Settled { .. }))
        }
        Ok(Reply::SentBatch(sent)) => {
            let is_sent = |it: &_| matches!(it, mailbox_wire::json::BatchResult::Sent(_));
            sent.results.iter().all(is_sent)
        }
        Ok(_) => true,
        Err(_) => false,
    }
}

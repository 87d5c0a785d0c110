//! What becomes of requests: they are worked on side by side, and answered as they are done.

use std::task::{Context, Poll};

use futures_util::StreamExt;
use mailbox_wire::call::Reply;
use mailbox_wire::oap::MAX_INFLIGHT;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Cancel, Connection, HIGH, Parked};
use super::output::To;
use super::question::Tongue;
use super::taking::COSTS_A_TURN;
use super::work::{Done, Ended, One, Outcome, Work, go_on};
use crate::calls::{Answered, Next};
use crate::failure::Answer;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Looks at a request once: most are done at once, and need not be kept. Whether this one is.
    pub(super) fn work(&mut self, mut work: Work, context: &mut Context<'_>) -> bool {
        match work.as_mut().poll(context) {
            Poll::Ready(done) => {
                self.finish(done);
                true
            }
            Poll::Pending => {
                self.at_work.push(work);
                false
            }
        }
    }

    /// Ends a receive or a stream of this connection, which is answered first.
    pub(super) fn cancel(&mut self, cancel: Cancel, context: &mut Context<'_>) {
        let corr_id = cancel.corr_id;
        match self.stops.get(&corr_id) {
            Some(stop) if self.cancels.len() < MAX_INFLIGHT => {
                stop.cancel();
                self.cancels.push(cancel);
                let is_it = |parked: &mut Parked| parked.to.corr_id() == corr_id;
                let parked: Vec<_> = self.parked.extract_if(.., is_it).collect();
                parked.into_iter().for_each(|parked| self.go_on(parked));
                self.collect(context);
            }
            // There is nothing to end; or somebody does nothing but cancel.
            _ => self.cancelled(&cancel),
        }
    }

    fn cancelled(&mut self, cancel: &Cancel) {
        let &Cancel { to, tongue, .. } = cancel;
        self.output.reply(to, |out| tongue.write_done(out));
    }

    /// Answers what is done; whether that was something.
    pub(super) fn collect(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while self.turn > 0
            && let Poll::Ready(Some(done)) = self.at_work.poll_next_unpin(context)
        {
            self.finish(done);
            has_moved = true;
        }
        has_moved
    }

    /// Answers. What is written costs as much of the turn as what is read.
    fn reply(&mut self, to: To, tongue: Tongue, reply: Reply) {
        let len = self.output.reply(to, |out| tongue.write(reply, out));
        self.turn = self.turn.saturating_sub(len / COSTS_A_TURN);
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::One(ended) => self.finish_one(ended),
            Done::Alike(each) => {
                each.into_iter().for_each(|(one, answer)| self.finish_alike(&one, answer));
            }
        }
    }

    fn finish_alike(&mut self, one: &One, answer: Answer<Reply>) {
        let &One { to, tongue, own, .. } = one;
        self.small -= own;
        match answer {
            Ok(reply) => self.reply(to, tongue, reply),
            Err(failure) => self.fail(to, one.op, &failure),
        }
        self.requests.done(to.corr_id());
    }

    fn finish_one(&mut self, ended: Ended) {
        let Ended { to, tongue, caller, op, own, result } = ended;
        self.small -= own;
        match result {
            Outcome::Answer(Ok(Answered::Stream(stream))) => {
                self.output.begin(to);
                let stream = Box::new(stream.until(self.peer.cut.clone()));
                self.park(Parked { stream, to, tongue, caller });
                return;
            }
            Outcome::Next(stream, Ok(next)) => {
                self.write_next(next, to, tongue);
                self.park(Parked { stream, to, tongue, caller });
                return;
            }
            Outcome::Answer(Ok(Answered::Reply(reply))) => {
                caller.trace.end(200, None);
                self.reply(to, tongue, reply);
            }
            Outcome::Answer(Ok(Answered::Messages(reply, hand_over))) => {
                caller.trace.end(200, None);
                self.reply(to, tongue, reply);
                self.output.hand_over(hand_over);
            }
            Outcome::Answer(Err(failure)) => {
                let kind = failure.error.kind();
                caller.trace.end(kind.status().http, Some(kind));
                self.service.metrics.failed(op, kind);
                self.output.failure(to, &failure, &caller.corr_id);
            }
            Outcome::Next(stream, Err(failure)) => {
                let kind = failure.error.kind();
                caller.trace.end(kind.status().http, Some(kind));
                self.service.metrics.failed(op, kind);
                self.output.end(to, Some((&failure, &caller.corr_id)));
                self.output.ended(stream);
            }
            Outcome::NotBegun => {
                caller.trace.end(200, None);
                self.output.begin(to);
                self.output.end(to, None);
            }
            Outcome::Left(stream) => {
                caller.trace.end(200, None);
                self.output.end(to, None);
                self.output.ended(stream);
            }
        }
        self.requests.done(to.corr_id());
        if self.stops.remove(&to.corr_id()).is_some() {
            let is_of = |cancel: &mut Cancel| cancel.corr_id == to.corr_id();
            let done: Vec<_> = self.cancels.extract_if(.., is_of).collect();
            done.iter().for_each(|cancel| self.cancelled(cancel));
        }
    }

    fn write_next(&mut self, next: Next, to: To, tongue: Tongue) {
        let len = match next {
            Next::Quiet => self.output.part(to, |out| out.extend_from_slice(tongue.sign_of_life())),
            Next::Messages(envelopes, hand_over) => {
                let len = self.output.part(to, |out| tongue.write_messages(envelopes, out));
                self.output.hand_over(hand_over);
                len
            }
        };
        self.turn = self.turn.saturating_sub(len / COSTS_A_TURN);
    }

    /// Lets a stream go on, now or when its client has taken what is there.
    fn park(&mut self, parked: Parked) {
        if self.output.len() >= HIGH {
            self.parked.push(parked);
        } else {
            self.go_on(parked);
        }
    }

    fn go_on(&mut self, parked: Parked) {
        let Parked { stream, to, tongue, caller } = parked;
        let stop = self.stops.get(&to.corr_id()).cloned().unwrap_or_default();
        self.at_work.push(go_on(stream, to, tongue, caller, stop));
    }

    /// Streams go on whose client has taken what was there; whether there were some.
    pub(super) fn resume(&mut self) -> bool {
        let parked = std::mem::take(&mut self.parked);
        let has_parked = !parked.is_empty();
        parked.into_iter().for_each(|parked| self.go_on(parked));
        has_parked
    }
}

//! What is asked, in the words of the wire, and what is answered: the same for every protocol.
//! Protocols read requests, write answers, and know nothing of what is in between.

use std::sync::Arc;
use std::time::Duration;

use mailbox::{DeadReason, Error, ErrorKind, MessageId, Name, Peek, Selection};
use mailbox_wire::call::{DeadListRequest, MessageRequest, Reply, Request, TopicsRequest};
use mailbox_wire::json::{
    DeadRequest, Deleted, Ok as Done, Problem, Purged, ReceiveRequest, Received, Records, Removed,
    Reprocessed, Revoked, RotateRequest, Rotated, SettleBatchRequest, SettleItem, SettleResult,
    SettledBatch, Topic, TopicEntry, Topics,
};

use super::{Facts, HandOver, Stream, convert, wish};
use crate::admission::{Budget, Place, Purpose, Room, full};
use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::service::Service;

/// Messages in flight on a stream whose client does not say how many it can take.
const IN_FLIGHT: u32 = 16;
/// What is said of one of many takes, if it is a reason why not; if that is said in a word; and if
/// it is none.
const RESULT: u64 = 1024;
const BRIEF_RESULT: u64 = 256;
const GOOD_RESULT: u64 = 64;
/// What a mailbox takes in a list, with its statistics, about.
const LISTED: u64 = 512;

/// Who asks, and what goes with the question.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) caller: Caller,
    pub(crate) facts: Facts,
    /// Its place among those that are worked on; one that waits gives it up.
    pub(crate) place: Place,
    /// What the question takes.
    pub(crate) room: Room,
}

/// What is answered.
#[derive(Debug)]
pub(crate) enum Answered {
    /// This.
    Reply(Reply),
    /// This, which has messages in it or takes room: whoever writes it says when that is done.
    Messages(Reply, HandOver),
    /// It goes on.
    Stream(Box<Stream>),
}

/// What a request is about, as far as it matters for when it is refused.
pub(crate) const fn purpose(request: &Request) -> Purpose {
    match request {
        Request::Send(_) | Request::SendBatch(_) => Purpose::Sending,
        // What the store can do is asked by every client first, also by one that comes to settle.
        Request::Settle(_) | Request::SettleBatch(_) | Request::Abilities => Purpose::Settling,
        Request::Peek(_) | Request::LookUp(..) | Request::Message(_) | Request::Dead(_) => {
            Purpose::Looking
        }
        _ => Purpose::Other,
    }
}

impl Service {
    /// A place for a call of one who may come, and was verified in that epoch.
    ///
    /// # Cancel safety
    /// Dropped, it has no place.
    pub(crate) async fn place_for(
        self: &Arc<Self>,
        caller: &Caller,
        purpose: Purpose,
        epoch: u64,
    ) -> Answer<Place> {
        let patience = self.settings().limits.refusal_pause;
        let place = match purpose {
            Purpose::Looking => {
                let turn = self.admission.turn(&caller.verified.token_id).await?;
                self.admission.request(purpose, patience).await?.with_turn(turn)
            }
            _ => self.admission.request(purpose, patience).await?,
        };
        // All that may have taken a while.
        self.auth.check_since(&caller.verified, epoch)?;
        Ok(place)
    }

    /// Does what is asked.
    ///
    /// # Cancel safety
    /// A receive that is dropped holds nothing; anything else may have taken effect.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        asking: Asking,
        request: Request,
    ) -> Answer<Answered> {
        let caller = &asking.caller;
        let reply = match request {
            Request::Send(message) => Reply::Sent(self.send_one(&asking, message).await?),
            Request::SendBatch(batch) => return self.send_batch(&asking, batch).await,
            Request::Receive(question) => return self.receive_asked(asking, question).await,
            Request::ReceiveStream(question) => return self.stream_asked(asking, question),
            Request::Settle(item) => self.settle_asked(caller, item).await?,
            Request::SettleBatch(batch) => return self.settle_batch(caller, batch).await,
            Request::Topics(question) => return self.topics(caller, question).await,
            Request::Topic(it) => self.topic(caller, &it.topic).await?,
            Request::Configure(it) => {
                let mailbox = Name::parse(&it.topic)?;
                let policy = self.policy(caller, &mailbox).await?;
                let policy = convert::changed(policy, it.policy)?;
                self.configure(caller, &mailbox, policy).await?;
                Reply::Done(Done { ok: true })
            }
            Request::Remove(it) => {
                let removed = self.remove(caller, &Name::parse(&it.topic)?).await?;
                Reply::Removed(Removed { removed })
            }
            Request::Purge(it) => {
                let removed = self.purge(caller, &Name::parse(&it.topic)?).await?;
                Reply::Purged(Purged { removed })
            }
            Request::Peek(it) => {
                let peek = Peek::Live { limit: it.limit.unwrap_or(10) };
                return self.show(caller, &it.topic, &peek).await;
            }
            Request::LookUp(topic, these) => {
                return self.show(caller, &topic, &convert::these(&these)).await;
            }
            Request::Message(it) => return self.message(caller, it).await,
            Request::Dead(it) => return self.dead(caller, &it).await,
            Request::Reprocess(it) => self.reprocess_asked(caller, &it).await?,
            Request::DeleteDead(it) => self.delete_dead_asked(caller, &it).await?,
            Request::Abilities => {
                caller.may_anything()?;
                Reply::Abilities(convert::abilities(self.store.abilities(), &self.config()))
            }
            Request::Mint(it) => {
                let ttl = it.ttl_s.map(Duration::from_secs);
                Reply::Minted(self.mint(caller, &it.ops, &it.topics, ttl, &it.caveats)?)
            }
            Request::Revoke(it) => {
                let (token_id, capability) = (it.token_id.as_deref(), it.capability.as_deref());
                let token_id = self.revoke(caller, token_id, capability).await?;
                Reply::Revoked(Revoked { token_id })
            }
            Request::Rotate(it) => self.rotate_asked(caller, it).await?,
        };
        Ok(Answered::Reply(reply))
    }

    async fn receive_asked(
        self: &Arc<Self>,
        asking: Asking,
        question: ReceiveRequest,
    ) -> Answer<Answered> {
        let Asking { caller, place, room, .. } = asking;
        // It may wait for long, and has no question any more.
        drop(room);
        let ReceiveRequest { topic, visibility_ms, max_messages, max_bytes, wait_ms } = question;
        let mut asked = self.asked(&topic, visibility_ms, max_messages, max_bytes)?;
        asked.wait = self.patience(Duration::from_millis(wait_ms.unwrap_or(0)))?;
        let taken = self.receive(&caller, &asked, place).await?;
        let made = (taken.at, taken.deliveries);
        let messages = self.envelopes(&caller, &asked, made, || None);
        Ok(Answered::Messages(Reply::Received(Received { messages }), taken.hand_over))
    }

    fn stream_asked(
        self: &Arc<Self>,
        asking: Asking,
        question: ReceiveRequest,
    ) -> Answer<Answered> {
        let ReceiveRequest { topic, visibility_ms, max_messages, max_bytes, wait_ms } = question;
        if wait_ms.is_some() {
            let error = Error::invalid("wait_ms", "given", "nothing: a stream always waits");
            return Err(error.into());
        }
        let max_messages = max_messages.unwrap_or(IN_FLIGHT.min(self.settings().max_messages));
        let asked = self.asked(&topic, visibility_ms, Some(max_messages), max_bytes)?;
        Ok(Answered::Stream(Box::new(Stream::open(self, asking.caller, asked)?)))
    }

    async fn settle_asked(&self, caller: &Caller, item: SettleItem) -> Answer<Reply> {
        let mut settled = self.settle(caller, vec![wish::item(item)?], 1).await?;
        settled.pop().ok_or_else(Failure::no_answer)??;
        Ok(Reply::Done(Done { ok: true }))
    }

    async fn settle_batch(
        self: &Arc<Self>,
        caller: &Caller,
        batch: SettleBatchRequest,
    ) -> Answer<Answered> {
        self.store.abilities().check_batch("items", batch.items.len())?;
        let (mut room, budget) = self.room_for_settled(caller, batch.items.len())?;
        let settled = self.settle_each(caller, batch.items, 1).await;
        let take = results_take(&settled);
        let is_brief = !room.grow(budget, &caller.verified.token_id, take);
        if !is_brief {
            room.shrink(take);
        }
        let result = |settled: Answer<()>| match settled {
            Ok(()) => SettleResult::Settled { ok: true },
            Err(failure) => {
                let error = self.problem_of(caller, &failure);
                SettleResult::Refused { error: if is_brief { brief(*error) } else { error } }
            }
        };
        let results = settled.into_iter().map(result).collect();
        let reply = Reply::SettledBatch(SettledBatch { results });
        Ok(Answered::Messages(reply, HandOver::of_nothing(self, room)))
    }

    /// Room for so many results, each of which can be a reason why not. Before anything is done:
    /// what was done is said.
    pub(super) fn room_for_results(&self, caller: &Caller, count: usize) -> Answer<Room> {
        let (mut room, bytes) = (Room::default(), count as u64 * RESULT);
        if !room.grow(&self.admission.outgoing, &caller.verified.token_id, bytes) {
            return Err(full("too many answers are going out").into());
        }
        Ok(room)
    }

    /// The same for settlements, which are not held because of other answers: they need room for a
    /// word on each, and where there is none left have some of their own.
    fn room_for_settled(&self, caller: &Caller, count: usize) -> Answer<(Room, &Budget)> {
        let bytes = count as u64 * BRIEF_RESULT;
        for budget in [&self.admission.outgoing, &self.admission.settled] {
            let mut room = Room::default();
            if room.grow(budget, &caller.verified.token_id, bytes) {
                return Ok((room, budget));
            }
        }
        Err(full("too many answers are going out").into())
    }

    async fn topics(
        self: &Arc<Self>,
        caller: &Caller,
        question: TopicsRequest,
    ) -> Answer<Answered> {
        let after = question.after.as_deref().map(Name::parse).transpose()?;
        let limit = question.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(Error::invalid("limit", limit, "1..=1000").into());
        }
        let names = self.list(caller, after, limit as usize).await?;
        // A list can be long, and nobody knows when it is taken.
        let mut room = Room::default();
        let bytes = names.len() as u64 * LISTED;
        if !room.grow(&self.admission.outgoing, &caller.verified.token_id, bytes) {
            return Err(full("too many answers are going out").into());
        }
        let mut topics = Vec::new();
        for name in names {
            let stats = match question.stats {
                Some(true) => Some(convert::stats(&self.stats(caller, &name).await?)),
                _ => None,
            };
            topics.push(TopicEntry { topic: name.to_string(), stats });
        }
        let hand_over = HandOver::of_nothing(self, room);
        Ok(Answered::Messages(Reply::Topics(Topics { topics }), hand_over))
    }

    async fn topic(&self, caller: &Caller, topic: &str) -> Answer<Reply> {
        let mailbox = Name::parse(topic)?;
        let stats = self.stats(caller, &mailbox).await?;
        let policy = self.policy(caller, &mailbox).await?;
        let (stats, policy) = (convert::stats(&stats), convert::policy(&policy));
        Ok(Reply::Topic(Topic { topic: mailbox.to_string(), stats, policy }))
    }

    async fn show(self: &Arc<Self>, caller: &Caller, topic: &str, peek: &Peek) -> Answer<Answered> {
        let mailbox = Name::parse(topic)?;
        let shards = self.settings().shards;
        let (found, room) = self.peek(caller, &mailbox, peek).await?;
        let record = |it| convert::record(&mailbox, it, shards);
        let records = Records { messages: found.into_iter().map(record).collect() };
        let hand_over = HandOver::of_nothing(self, room);
        Ok(Answered::Messages(Reply::Records(records), hand_over))
    }

    async fn message(self: &Arc<Self>, caller: &Caller, it: MessageRequest) -> Answer<Answered> {
        let mailbox = it.topic.as_deref().map(Name::parse).transpose()?;
        let id = MessageId::from_text(&it.msg_id);
        let (mailbox, record) = self.find_message(caller, mailbox, &id).await?;
        if record.death.is_some_and(|death| death.reason == DeadReason::Integrity) {
            let why = record.last_error.as_deref().unwrap_or("its payload is not what was sent");
            let error = Error::new(ErrorKind::Integrity, format!("a dead letter: {why}"));
            return Err(Failure::from(error.with_mailbox(&mailbox)));
        }
        let room = self.room_for(caller, std::slice::from_ref(&record))?;
        let shown = convert::record(&mailbox, record, self.settings().shards);
        let hand_over = HandOver::of_nothing(self, room);
        Ok(Answered::Messages(Reply::Record(Box::new(shown)), hand_over))
    }

    async fn dead(self: &Arc<Self>, caller: &Caller, it: &DeadListRequest) -> Answer<Answered> {
        // As the document has it.
        if let Some(after) = it.after.filter(|after| i64::try_from(*after).is_err()) {
            return Err(Error::invalid("after", after, format_args!("0..={}", i64::MAX)).into());
        }
        let peek = Peek::Dead { after: it.after, limit: it.limit.unwrap_or(100) };
        self.show(caller, &it.topic, &peek).await
    }

    async fn reprocess_asked(&self, caller: &Caller, it: &DeadRequest) -> Answer<Reply> {
        let (mailbox, which) = (Name::parse(&it.topic)?, self.selection(it)?);
        let (reprocessed, remaining) = self.reprocess(caller, &mailbox, &which).await?;
        Ok(Reply::Reprocessed(Reprocessed { reprocessed, remaining }))
    }

    /// Which dead letters are meant.
    fn selection(&self, it: &DeadRequest) -> Result<Selection, Error> {
        let named = it.msg_ids.as_ref().map_or(0, Vec::len);
        self.store.abilities().check_batch("msg_ids", named)?;
        convert::selection(it)
    }

    async fn delete_dead_asked(&self, caller: &Caller, it: &DeadRequest) -> Answer<Reply> {
        let (mailbox, which) = (Name::parse(&it.topic)?, self.selection(it)?);
        let (deleted, remaining) = self.delete_dead(caller, &mailbox, &which).await?;
        Ok(Reply::Deleted(Deleted { deleted, remaining }))
    }

    async fn rotate_asked(self: &Arc<Self>, caller: &Caller, it: RotateRequest) -> Answer<Reply> {
        let grace = it.grace_s.map(Duration::from_secs);
        let (kid, until) = self.rotate(caller, grace).await?;
        let operator_capability = self.new_operator(caller)?;
        let previous_until = until.map(|until| until.to_string());
        Ok(Reply::Rotated(Rotated { kid, previous_until, operator_capability }))
    }
}

/// What these results take.
pub(super) fn results_take<T>(results: &[Answer<T>]) -> u64 {
    let take = |result: &Answer<T>| if result.is_ok() { GOOD_RESULT } else { RESULT };
    results.iter().map(take).sum()
}

/// The same in a word, for one who does not take what is said at length: what a program goes by.
fn brief(problem: Problem) -> Box<Problem> {
    let Problem { code, kind, reason, retry_after_ms, .. } = problem;
    let message = "no room to say more".to_owned();
    Box::new(Problem { code, kind, message, reason, retry_after_ms, ..Problem::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without `retry_after_ms` a client never tries again, without a reason it does not know that
    /// nothing was done.
    #[test]
    fn what_is_said_in_a_word_is_short_and_has_what_programs_go_by() {
        let long = Problem {
            code: "E_FRAME_TOO_LARGE".to_owned(),
            kind: "receipt_handle_expired".to_owned(),
            message: "at length ".repeat(50),
            corr_id: "0".repeat(64),
            reason: Some("bad_signature".to_owned()),
            retry_after_ms: Some(3_600_000),
            field: Some("receipt_handle".to_owned()),
            topic: Some("t".repeat(80)),
            msg_id: None,
        };
        let said = brief(long.clone());
        assert_eq!((&said.code, &said.kind), (&long.code, &long.kind));
        assert_eq!(said.reason, long.reason);
        assert_eq!(said.retry_after_ms, long.retry_after_ms);
        let written = serde_json::to_vec(&SettleResult::Refused { error: said }).unwrap();
        assert!(written.len() as u64 <= BRIEF_RESULT, "{} bytes", written.len());
    }
}

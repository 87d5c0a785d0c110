//! Commands on a subject's mailbox.

use std::collections::HashMap;
use std::time::Duration;

use mailbox::{
    Mailbox, MessageId, Peek, ReceiptHandle, ReceiveOptions, Result, Selection, SendOptions,
};

use super::command::{Command, Which};
use super::sight::{Gave, Seen, Sight};
use crate::probe::Probe;
use crate::world::World;

/// Most messages looked at: more than a sequence of commands ever sends.
const LOOK: u32 = 250;

pub(super) struct Driven {
    world: World,
    mailbox: Mailbox<Probe, Probe>,
    /// By number.
    ids: Vec<MessageId>,
    numbers: HashMap<MessageId, usize>,
    /// In order of delivery.
    handles: Vec<ReceiptHandle>,
}

impl Driven {
    pub(super) fn new(world: &World) -> Result<Self> {
        Ok(Self {
            world: world.clone(),
            mailbox: world.mailbox("model")?,
            ids: Vec::new(),
            numbers: HashMap::new(),
            handles: Vec::new(),
        })
    }

    pub(super) async fn run(&mut self, command: &Command) -> Result<Gave> {
        let unit = self.world.unit();
        Ok(match command {
            Command::Send { delay, group, key } => self.send(unit * *delay, *group, *key).await,
            Command::Receive { most, visibility } => self.receive(*most, unit * *visibility).await,
            Command::Settle { back, choice } => {
                let place = self.handles.len().checked_sub(back + 1);
                let Some(handle) = place.and_then(|place| self.handles.get(place)) else {
                    return Ok(Gave::Nothing);
                };
                match self.mailbox.settle(handle, choice.verdict(unit)).await {
                    Ok(()) => Gave::Nothing,
                    Err(error) => Gave::Refused(error.kind()),
                }
            }
            Command::Redrive(which) => count(self.mailbox.redrive(self.selection(which)).await),
            Command::Delete(which) => count(self.mailbox.delete_dead(self.selection(which)).await),
            Command::Purge => Gave::Count(self.mailbox.purge().await?),
            Command::Configure(rules) => {
                self.mailbox.configure(rules.policy(unit)).await?;
                Gave::Nothing
            }
            Command::Pass(units) => {
                self.world.pass(*units).await;
                Gave::Nothing
            }
        })
    }

    async fn send(&mut self, delay: Duration, group: Option<u8>, key: Option<(u8, u8)>) -> Gave {
        let mut options = SendOptions::new().with_delay(delay);
        options.group = group.map(|group| format!("group {group}"));
        options.idempotency_key = key.map(|(key, _)| format!("key {key}"));
        let body = Probe::new(key.map_or(0, |(_, payload)| payload.into()));
        match self.mailbox.send_with(body, options).await {
            Err(error) => Gave::Refused(error.kind()),
            Ok(sent) => {
                let next = self.ids.len();
                let number = *self.numbers.entry(sent.id.clone()).or_insert(next);
                if number == next {
                    self.ids.push(sent.id);
                }
                Gave::Sent { number, duplicate: sent.duplicate }
            }
        }
    }

    async fn receive(&mut self, most: u32, visibility: Duration) -> Gave {
        let options =
            ReceiveOptions::new().with_max_messages(most).with_visibility_timeout(visibility);
        match self.mailbox.receive_with(options).await {
            Err(error) => Gave::Refused(error.kind()),
            Ok(messages) => {
                self.handles.extend(messages.iter().map(|it| it.receipt_handle().clone()));
                let delivered =
                    messages.iter().map(|it| (self.number(it.id()), it.delivery_count()));
                Gave::Delivered(delivered.collect())
            }
        }
    }

    fn selection(&self, which: &Which) -> Selection {
        match which {
            Which::All => Selection::All,
            Which::Oldest(most) => Selection::Oldest(*most),
            Which::Reason(reason) => Selection::Reason(*reason),
            Which::Messages(numbers) => {
                let nobody = || MessageId::from_text("nobody");
                let id = |number: &usize| self.ids.get(*number).cloned().unwrap_or_else(nobody);
                Selection::These(numbers.iter().map(id).collect())
            }
        }
    }

    /// A message that nobody has sent gets a number that nobody has.
    fn number(&self, id: &MessageId) -> usize {
        self.numbers.get(id).copied().unwrap_or(usize::MAX)
    }

    pub(super) async fn look(&self) -> Result<Sight> {
        // First of all, because retention is applied when a mailbox is looked at.
        let stats = self.mailbox.stats().await?;
        let live = self.mailbox.peek(Peek::Live { limit: LOOK }).await?;
        let dead = self.mailbox.peek(Peek::Dead { after: None, limit: LOOK }).await?;
        let messages = live.iter().chain(&dead).map(|seen| Seen {
            number: self.number(seen.id()),
            phase: seen.phase(),
            delivery_count: seen.delivery_count(),
            receivable_in: seen.receivable_in(),
            last_error: seen.last_error().map(str::to_owned),
            reason: seen.death().map(|death| death.reason),
        });
        Ok(Sight {
            counts: [stats.delayed, stats.ready, stats.invisible, stats.dead],
            oldest_age: stats.oldest_age,
            dedup_entries: stats.dedup_entries,
            messages: messages.collect(),
        })
    }
}

fn count(result: Result<u64>) -> Gave {
    match result {
        Ok(count) => Gave::Count(count),
        Err(error) => Gave::Refused(error.kind()),
    }
}

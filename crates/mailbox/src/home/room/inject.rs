//! A message with a past, for tests: in line as if it had been delivered and nacked before.

use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{Draft, Event, Key, Sending, Time};

use crate::backend::Outgoing;
use crate::error::{Error, Result};
use crate::home::keep::InMemory;
use crate::home::room::{Room, State, letter};
use crate::id::{MessageId, ulid};

impl<B> Room<InMemory<B>> {
    /// Puts a message in line that has been delivered `deliveries` times. Nobody can receive it
    /// before it has its whole past: all of it happens under one hold of the lock.
    pub(crate) fn inject(&self, outgoing: Outgoing<B>, deliveries: u32) -> Result<MessageId> {
        let now = self.clock.now();
        let enqueued_at = self.clock.wall_at(now);
        let payload = Arc::new(letter(outgoing, enqueued_at));
        let mut state = self.open()?;
        let key = state.queue.next_key();
        let id = ulid::compose(enqueued_at.as_unix_millis(), self.number, key, self.salt);
        match state.queue.decide_send(now, Draft::new(id, payload)) {
            Ok(Sending::New(event)) => drop(state.queue.apply(event)),
            Ok(Sending::Duplicate(first)) => return Ok(first.into()),
            Err(refusal) => return Err(Error::refused(refusal, &self.name)),
        }
        for _ in 0..deliveries {
            if !state.deliver_in_vain(now, key) {
                break;
            }
        }
        let wakers = state.after_change(now);
        drop(state);
        wakers.wake();
        Ok(id.into())
    }
}

impl<B> State<InMemory<B>> {
    /// Delivers a message, whoever is before it in line, and nacks it. False if it has been
    /// delivered as often as it may be.
    fn deliver_in_vain(&mut self, now: Time, key: Key) -> bool {
        loop {
            // Only the queue knows the next lease. A zero timeout is never refused.
            let Ok(Some(event)) = self.queue.decide_receive(now, Duration::ZERO) else {
                return false;
            };
            match event {
                Event::Delivered { lease, at, due, hold_until, .. } => {
                    let delivered = Event::Delivered { key, lease, at, due, hold_until };
                    drop(self.queue.apply(delivered));
                    drop(self.queue.apply(Event::Nacked { key, at, due: at, error: None }));
                    return true;
                }
                // The next receive would bury it: that is for the test to see, not for us.
                event if event.key() == Some(key) => return false,
                // Somebody in front is due to be buried.
                event => drop(self.queue.apply(event)),
            }
        }
    }
}

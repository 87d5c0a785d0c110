//! What a backend can do, as data: drives validation, the conformance suite and the documentation.

use std::time::Duration;

use mailbox_core::{Policy, Verdict, limits};

use crate::backend::Outgoing;
use crate::error::{Error, ErrorKind, Result};
use crate::options::ReceiveOptions;

/// What a backend promises beyond the least that every backend promises, and its limits (L).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abilities {
    /// What kind of backend it is.
    pub backend: &'static str,
    /// Messages survive the end of the process (D2).
    pub durable: bool,
    /// Deliveries are in order of becoming receivable (D7).
    pub ordered: bool,
    /// Counts are exact (M2).
    pub exact_count: bool,
    /// Everything that happens is counted (M3).
    pub totals: bool,
    /// Idempotency keys are understood (I1).
    pub idempotency: bool,
    /// Ordering groups are understood.
    pub groups: bool,
    /// A delivery that never reached its consumer can be undone without raising its count (D3).
    pub undo: bool,
    /// A settle after the deadline is always refused (V4).
    pub strict_deadlines: bool,
    /// How late a deadline may be noticed (V2).
    pub resolution: Duration,
    /// Largest `max_messages` (D6), and most items of a batch.
    pub max_messages: u32,
    /// Largest payload, in bytes (L1).
    pub max_payload: usize,
    /// Longest delay of a send (D8).
    pub max_delay: Duration,
}

impl Abilities {
    /// Everything, with the widest limits of the contract; backends take away what they lack.
    #[must_use]
    pub const fn full(backend: &'static str) -> Self {
        Self {
            backend,
            durable: true,
            ordered: true,
            exact_count: true,
            totals: true,
            idempotency: true,
            groups: true,
            undo: true,
            strict_deadlines: true,
            resolution: Duration::from_millis(50),
            max_messages: 256,
            max_payload: limits::PAYLOAD_LEN,
            max_delay: limits::DELAY,
        }
    }

    /// Whether a batch of this size is accepted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParameter`].
    pub fn check_batch(&self, field: &'static str, size: usize) -> Result<()> {
        if size > self.max_messages as usize {
            return Err(Error::invalid(field, size, format_args!("0..={}", self.max_messages)));
        }
        Ok(())
    }

    /// Whether a message is within the limits, its payload having `payload_len` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParameter`], [`ErrorKind::TooLarge`], [`ErrorKind::Unsupported`].
    pub fn check_send<B>(&self, message: &Outgoing<B>, payload_len: usize) -> Result<()> {
        at_most("payload", payload_len, self.max_payload)?;
        within("delay", message.delay, self.max_delay)?;
        let is_reserved = |key: &&String| key.starts_with(limits::RESERVED_PREFIX);
        let reserved = message.attributes.keys().filter(is_reserved).count();
        let own = message.attributes.len() - reserved;
        for (count, most) in [(own, limits::ATTRIBUTES), (reserved, limits::RESERVED_ATTRIBUTES)] {
            if count > most {
                return Err(Error::invalid(
                    "attributes",
                    format_args!("{count} entries"),
                    format_args!("0..={most} entries"),
                ));
            }
        }
        for (key, value) in &message.attributes {
            at_most("attribute key", key.len(), limits::ATTRIBUTE_KEY_LEN)?;
            at_most("attribute value", value.len(), limits::ATTRIBUTE_VALUE_LEN)?;
        }
        if let Some(reply_to) = &message.reply_to {
            at_most("reply_to", reply_to.len(), limits::REPLY_TO_LEN)?;
        }
        if let Some(key) = &message.idempotency_key {
            self.needs(self.idempotency, "idempotency_key")?;
            named("idempotency_key", key, limits::IDEMPOTENCY_KEY_LEN)?;
        }
        if let Some(group) = &message.group {
            self.needs(self.groups, "group")?;
            named("group", group, limits::GROUP_LEN)?;
        }
        Ok(())
    }

    /// Whether a receive is within the limits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParameter`].
    pub fn check_receive(&self, options: &ReceiveOptions) -> Result<()> {
        if options.max_messages == 0 || options.max_messages > self.max_messages {
            let bound = format_args!("1..={}", self.max_messages);
            return Err(Error::invalid("max_messages", options.max_messages, bound));
        }
        within("visibility_timeout", options.visibility_timeout, limits::VISIBILITY_TIMEOUT)
    }

    /// Whether a verdict is within the limits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParameter`], [`ErrorKind::TooLarge`].
    pub fn check_verdict(&self, verdict: &Verdict) -> Result<()> {
        let text = |error: &Option<Box<str>>| match error {
            Some(error) => at_most("error", error.len(), limits::ERROR_TEXT_LEN),
            None => Ok(()),
        };
        match verdict {
            Verdict::Acknowledge | Verdict::Return => Ok(()),
            Verdict::Nack { delay, error } => {
                within("nack delay", *delay, limits::VISIBILITY_TIMEOUT)?;
                text(error)
            }
            Verdict::Extend { timeout } => {
                within("visibility_timeout", *timeout, limits::VISIBILITY_TIMEOUT)
            }
            Verdict::Reject { error, .. } => text(error),
        }
    }

    /// Whether a policy makes sense.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParameter`].
    pub fn check_policy(&self, policy: &Policy) -> Result<()> {
        let retention = &policy.retention;
        for (field, age) in [
            ("retention.ready_age", retention.ready_age),
            ("retention.dead_age", retention.dead_age),
        ] {
            if age.is_some_and(|age| age.is_zero()) {
                return Err(Error::invalid(field, "0 s", "more than 0 s, or none"));
            }
        }
        for (field, most) in [
            ("max_attempts", policy.max_attempts),
            ("retention.in_flight_factor", retention.in_flight_factor),
        ] {
            if most == Some(0) {
                return Err(Error::invalid(field, 0, "1 or more, or none"));
            }
        }
        if policy.max_in_flight == 0 {
            return Err(Error::invalid("max_in_flight", 0, "1 or more"));
        }
        if policy.dedup_capacity == 0 {
            return Err(Error::invalid("dedup_capacity", 0, "1 or more"));
        }
        Ok(())
    }

    fn needs(&self, able: bool, field: &'static str) -> Result<()> {
        if able {
            return Ok(());
        }
        let message = format!("the {} backend takes no {field}", self.backend);
        Err(Error::new(ErrorKind::Unsupported, message).with_field(field))
    }
}

fn at_most(field: &'static str, size: usize, most: usize) -> Result<()> {
    if size > most {
        return Err(Error::too_large(field, size, most));
    }
    Ok(())
}

/// A key is there to be recognised: an empty one is a mistake.
fn named(field: &'static str, value: &str, most: usize) -> Result<()> {
    if value.is_empty() {
        return Err(Error::invalid(field, "empty", format_args!("1..={most} bytes")));
    }
    at_most(field, value.len(), most)
}

fn within(field: &'static str, value: Duration, most: Duration) -> Result<()> {
    if value > most {
        let (value, most) = (value.as_secs_f64(), most.as_secs());
        return Err(Error::invalid(field, format_args!("{value} s"), format_args!("0..={most} s")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_keeps_has_a_bound_of_its_own() {
        let with = |own: usize, reserved: usize| {
            let mut message = Outgoing::new(());
            let own = (0..own).map(|number| format!("own {number}"));
            let reserved = (0..reserved).map(|number| format!("mailbox.{number}"));
            message.attributes = own.chain(reserved).map(|key| (key, String::new())).collect();
            Abilities::full("test").check_send(&message, 0)
        };
        assert!(with(64, 8).is_ok());
        for (own, reserved) in [(65, 0), (0, 9)] {
            assert_eq!(with(own, reserved).unwrap_err().kind(), ErrorKind::InvalidParameter);
        }
    }
}

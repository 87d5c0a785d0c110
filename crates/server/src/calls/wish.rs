//! Deliveries to settle, as the wire names them.

use std::time::Duration;

use mailbox::{DeadReason, Error, ErrorKind};
use mailbox_wire::json::{SettleItem, SettleOp};

use super::convert::dead_reason;
use super::{Delivery, Item, Wish};
use crate::failure::Answer;

/// What shall become of which delivery.
pub(super) fn item(it: SettleItem) -> Answer<Item> {
    let delivery = Delivery::named(it.msg_id.as_deref(), it.receipt_handle)?;
    let only_of = |op: &'static str, field: &'static str, is_given: bool| {
        if is_given { Err(Error::invalid(field, "given", op)) } else { Ok(()) }
    };
    if it.op != SettleOp::Nack {
        let what = "nothing unless `op` is `nack`";
        only_of(what, "delay_ms", it.delay_ms.is_some())?;
        only_of(what, "dead", it.dead.is_some() || it.dead_reason.is_some())?;
        only_of(what, "reason", it.reason.is_some())?;
    }
    if it.op != SettleOp::Extend {
        let what = "nothing unless `op` is `extend`";
        only_of(what, "visibility_ms", it.visibility_ms.is_some())?;
    }
    let wish = match it.op {
        SettleOp::Ack => Wish::Acknowledge,
        SettleOp::Nack => nack(it.reason, it.delay_ms, it.dead, it.dead_reason.as_deref())?,
        SettleOp::Extend => {
            let time = it.visibility_ms.ok_or_else(|| {
                let message = "an extension says for how long";
                Error::new(ErrorKind::InvalidParameter, message).with_field("visibility_ms")
            })?;
            Wish::Extend(Duration::from_millis(time))
        }
        SettleOp::Return => Wish::Return,
    };
    Ok(Item { delivery, wish })
}

fn nack(
    reason: Option<String>,
    delay_ms: Option<u64>,
    dead: Option<bool>,
    dead_reason_word: Option<&str>,
) -> Answer<Wish> {
    let is_dead = dead.unwrap_or(false);
    if is_dead && delay_ms.is_some() {
        let error = Error::invalid("delay_ms", "given", "nothing for a dead letter");
        return Err(error.into());
    }
    if !is_dead && dead_reason_word.is_some() {
        return Err(Error::invalid("dead_reason", "given", "nothing unless `dead`").into());
    }
    if !is_dead {
        return Ok(Wish::Nack(delay_ms.map(Duration::from_millis), reason));
    }
    let word = dead_reason_word.map(dead_reason).transpose()?;
    Ok(Wish::Reject(word.unwrap_or(DeadReason::Rejected), reason))
}

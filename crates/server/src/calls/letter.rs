//! Between what goes over the wire and what the store keeps. What a sender says beside payload and
//! attributes, and the store has no place for, is kept as reserved attributes.

use std::collections::BTreeMap;
use std::time::Duration;

use mailbox::{Error, ErrorKind, Letter, MessageId, Name, Outgoing, Result, limits};
use mailbox_wire::attributes::Attributes;
use mailbox_wire::correlation;
use mailbox_wire::hash::Hash;
use mailbox_wire::json::{BatchMessage, Envelope};
use mailbox_wire::payload::Payload;
use mailbox_wire::reserved::{CORR_ID, PARTITION, SIG, TRACEPARENT};
use uuid::Uuid;

use super::shard::shard;

/// What a request says about the messages in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// The correlation id that the client gave, if it is one.
    pub(crate) corr_id: Option<Uuid>,
    pub(crate) traceparent: Option<String>,
    /// A single message that was sent before is a conflict, not a success.
    pub(crate) is_conflict: bool,
}

/// Most signs of a key that are repeated in an error.
const SHOWN: usize = 80;

/// A message on its way in.
pub(crate) fn outgoing(message: BatchMessage, facts: &Facts) -> Result<Outgoing> {
    let mut attributes = message.attrs.into_map();
    if let Some(key) = attributes.keys().find(|key| key.starts_with(limits::RESERVED_PREFIX)) {
        let message = format!(
            "attribute {:?}: those that begin with {:?} are the service's own",
            key.chars().take(SHOWN).collect::<String>(),
            limits::RESERVED_PREFIX
        );
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("attributes"));
    }
    let corr_id = match message.corr_id {
        None => facts.corr_id,
        Some(text) => Some(Uuid::try_parse(&text).map_err(|_| {
            Error::new(ErrorKind::InvalidParameter, "corr_id is no UUID").with_field("corr_id")
        })?),
    };
    let traceparent = message.traceparent.or_else(|| facts.traceparent.clone());
    for (key, value) in [
        (CORR_ID, corr_id.map(|id| id.to_string())),
        (SIG, message.sig),
        (PARTITION, message.partition),
        (TRACEPARENT, traceparent),
    ] {
        attributes.extend(value.map(|value| (key.to_owned(), value)));
    }
    Ok(Outgoing {
        payload: message.payload_b64.0,
        attributes,
        reply_to: message.reply_to,
        idempotency_key: message.idem_key,
        group: message.group,
        delay: Duration::from_millis(message.delay_ms.unwrap_or(0)),
    })
}

/// How much there is of a message: what of it can be large.
pub(crate) fn weight(letter: &Letter) -> u64 {
    let attributes = letter.attributes.iter().map(|(key, value)| key.len() + value.len());
    (letter.payload.len() + attributes.sum::<usize>()) as u64
}

/// A message on its way out, without what belongs to a delivery.
pub(crate) fn envelope(
    mailbox: &Name,
    id: &MessageId,
    letter: &Letter,
    attempt: u32,
    shards: u32,
) -> Envelope {
    let (own, mut reserved) = split(&letter.attributes);
    let attrs = Attributes::from(own);
    let mut take = |key: &str| reserved.remove(key);
    let (corr_id, sig) = (take(CORR_ID), take(SIG));
    let (partition, traceparent) = (take(PARTITION), take(TRACEPARENT));
    let ts = letter.enqueued_at.to_string();
    let payload_hash = Hash::of_payload(&letter.payload);
    let key = letter.idempotency_key.as_deref();
    let hash_chain = Hash::of_chain(mailbox.as_str(), &ts, key, payload_hash, &attrs);
    Envelope {
        msg_id: id.to_string(),
        topic: mailbox.to_string(),
        ts,
        idem_key: letter.idempotency_key.clone(),
        payload_hash,
        attrs,
        corr_id: corr_id.unwrap_or_else(|| made_corr_id(id, letter).to_string()),
        shard: shard(mailbox.as_str(), partition.as_deref(), shards),
        attempt,
        hash_chain,
        sig,
        payload_b64: Payload(letter.payload.clone()),
        receipt_handle: None,
        visible_until_ms: None,
        reply_to: letter.reply_to.clone(),
        group: letter.group.clone(),
        partition,
        traceparent,
    }
}

type Map = BTreeMap<String, String>;

/// The sender's attributes, and the reserved ones.
fn split(attributes: &Map) -> (Map, Map) {
    let pairs = attributes.iter().map(|(key, value)| (key.clone(), value.clone()));
    pairs.partition(|(key, _)| !key.starts_with(limits::RESERVED_PREFIX))
}

/// A correlation id for a message whose sender gave none.
fn made_corr_id(id: &MessageId, letter: &Letter) -> Uuid {
    correlation::made(id.as_ulid(), &id.to_string(), letter.enqueued_at.as_unix_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> BatchMessage {
        BatchMessage { payload_b64: Payload(b"Hi"[..].into()), ..BatchMessage::default() }
    }

    fn letter(outgoing: Outgoing) -> Letter {
        Letter {
            payload: outgoing.payload,
            attributes: outgoing.attributes,
            reply_to: outgoing.reply_to,
            idempotency_key: outgoing.idempotency_key,
            group: outgoing.group,
            enqueued_at: "2025-10-12T18:02:41.000Z".parse().unwrap(),
        }
    }

    #[test]
    fn what_a_sender_says_comes_out_again_and_the_hashes_fit() {
        let mailbox = Name::parse("user:42:inbox").unwrap();
        let mut sent = message();
        sent.idem_key = Some("demo-1".to_owned());
        sent.attrs = [("content-type".to_owned(), "text/plain".to_owned())].into();
        sent.sig = Some("s".to_owned());
        sent.partition = Some("p".to_owned());
        sent.corr_id = Some("0190163D-8694-739B-AEA5-966C26F8AD91".to_owned());
        let facts = Facts { traceparent: Some("00-ab-cd-01".to_owned()), ..Facts::default() };
        let letter = letter(outgoing(sent, &facts).unwrap());
        let out = envelope(&mailbox, &MessageId::from_text("x"), &letter, 1, 8);
        assert!(out.is_whole());
        let chain = "b3:721dc98e1260a2367080d0e263c408fa8f4c17af704cb5d9cfc36f118a9ef1a5";
        assert_eq!(out.hash_chain.to_string(), chain);
        assert_eq!(out.corr_id, "0190163d-8694-739b-aea5-966c26f8ad91");
        assert_eq!(out.attrs.iter().count(), 1);
        let rest = [out.sig, out.partition, out.traceparent];
        assert_eq!(rest.map(Option::unwrap), ["s", "p", "00-ab-cd-01"]);
    }

    #[test]
    fn reserved_attributes_are_not_a_senders_to_give() {
        let mut sent = message();
        sent.attrs = [("mailbox.sig".to_owned(), "x".to_owned())].into();
        assert!(outgoing(sent, &Facts::default()).is_err());
        let sent = BatchMessage { corr_id: Some("x".to_owned()), ..message() };
        assert!(outgoing(sent, &Facts::default()).is_err());
    }
}

//! The messages of the experiments. Invariant: everything about a message follows from the seed of
//! the run and the message's number, so that whoever finds one can tell whether it is what was
//! sent, down to the last byte.

use std::collections::BTreeMap;

use bytes::Bytes;
use mailbox::{Letter, Name, Outgoing};

use crate::random::Random;
use crate::subject::Subject;

/// Mailboxes that messages are spread over.
pub(crate) const MAILBOXES: u64 = 3;
/// The number of a message is at the front of its payload.
const NUMBER_LEN: usize = 8;
/// Longest filler behind it.
const FILLER_LEN: u64 = 8 * 1024;

/// Makes messages, and recognises them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letters {
    /// Seed of the run.
    pub(crate) seed: u64,
    /// Nothing but payloads: no keys, which are remembered for minutes, and no groups.
    pub(crate) plain: bool,
    /// Some belong to ordering groups.
    pub(crate) groups: bool,
}

/// What a message turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// The message with this number, as it was sent.
    Intact(u64),
    /// It has this number, but is not as it was sent.
    Damaged(u64),
    /// There is not even a number.
    Unreadable,
}

impl Letters {
    /// Of every kind that this home can keep.
    pub(crate) const fn of(seed: u64, subject: Subject) -> Self {
        Self { seed, plain: false, groups: subject.has_groups() }
    }

    /// The message with this number.
    pub(crate) fn outgoing(self, number: u64) -> Outgoing {
        let mut random = Random::of(self.seed, number);
        let traits = random.next();
        // Most are short, as most messages are; one in eight has no filler at all.
        let most = FILLER_LEN >> (traits % 4 * 2);
        let filler = if traits >> 8 & 7 == 0 { 0 } else { random.below(most + 1) };
        let mut payload = Vec::with_capacity(NUMBER_LEN + FILLER_LEN as usize + 8);
        payload.extend_from_slice(&number.to_le_bytes());
        while payload.len() < NUMBER_LEN + filler as usize {
            payload.extend_from_slice(&random.next().to_le_bytes());
        }
        payload.truncate(NUMBER_LEN + filler as usize);

        let mut outgoing = Outgoing::new(Bytes::from(payload));
        if self.plain {
            return outgoing;
        }
        if traits >> 16 & 3 == 0 {
            outgoing.attributes = BTreeMap::from([("number".to_owned(), number.to_string())]);
        }
        if traits >> 18 & 3 == 0 {
            outgoing.reply_to = Some(format!("replies-{}", number % 7));
        }
        if traits >> 20 & 7 < 3 {
            outgoing.idempotency_key = Some(format!("key-{number}"));
        }
        if self.groups && traits >> 23 & 7 == 0 {
            outgoing.group = Some(format!("group-{}", traits >> 26 & 3));
        }
        outgoing
    }

    /// Whether the message with this number has an idempotency key.
    pub(crate) fn has_key(self, number: u64) -> bool {
        self.outgoing(number).idempotency_key.is_some()
    }

    /// Which message a letter is, found in this mailbox.
    pub(crate) fn recognise(self, mailbox: &Name, letter: &Letter) -> Content {
        let Some(number) = letter.payload.first_chunk::<NUMBER_LEN>() else {
            return Content::Unreadable;
        };
        let number = u64::from_le_bytes(*number);
        let sent = self.outgoing(number);
        let is_same = letter.payload == sent.payload
            && letter.attributes == sent.attributes
            && letter.reply_to == sent.reply_to
            && letter.idempotency_key == sent.idempotency_key
            && letter.group == sent.group
            && *mailbox == mailbox_of(number);
        if is_same { Content::Intact(number) } else { Content::Damaged(number) }
    }
}

/// The mailbox that the message with this number is sent to.
pub(crate) fn mailbox_of(number: u64) -> Name {
    Name::parse(&format!("box-{}", number % MAILBOXES)).expect("a valid name")
}

/// All mailboxes.
pub(crate) fn mailboxes() -> Vec<Name> {
    (0..MAILBOXES).map(mailbox_of).collect()
}

#[cfg(test)]
mod tests {
    use mailbox::Timestamp;

    use super::*;

    const LETTERS: Letters = Letters { seed: 5, plain: false, groups: true };

    fn letter(number: u64) -> Letter {
        let sent = LETTERS.outgoing(number);
        Letter {
            payload: sent.payload,
            attributes: sent.attributes,
            reply_to: sent.reply_to,
            idempotency_key: sent.idempotency_key,
            group: sent.group,
            enqueued_at: Timestamp::from_unix_millis(0),
        }
    }

    #[test]
    fn a_message_is_recognised_and_every_change_to_it_is_seen() {
        for number in 0..200 {
            let mailbox = mailbox_of(number);
            let good = letter(number);
            assert_eq!(LETTERS.recognise(&mailbox, &good), Content::Intact(number));
            assert_eq!(
                LETTERS.recognise(&mailbox_of(number + 1), &good),
                Content::Damaged(number),
                "another mailbox"
            );
            let mut bytes = good.payload.to_vec();
            bytes.push(0);
            let longer = Letter { payload: bytes.clone().into(), ..good.clone() };
            assert_eq!(LETTERS.recognise(&mailbox, &longer), Content::Damaged(number));
            bytes.pop();
            if let Some(byte) = bytes.get_mut(NUMBER_LEN) {
                *byte ^= 1;
                let flipped = Letter { payload: bytes.into(), ..good.clone() };
                assert_eq!(LETTERS.recognise(&mailbox, &flipped), Content::Damaged(number));
            }
            let keyed = Letter { idempotency_key: Some("other".to_owned()), ..good };
            assert_eq!(LETTERS.recognise(&mailbox, &keyed), Content::Damaged(number));
        }
    }

    #[test]
    fn a_payload_without_number_is_unreadable() {
        let short = Letter { payload: Bytes::from_static(b"1234567"), ..letter(1) };
        assert_eq!(LETTERS.recognise(&mailbox_of(1), &short), Content::Unreadable);
    }

    #[test]
    fn messages_are_of_every_kind() {
        let all: Vec<Outgoing> = (0..400).map(|number| LETTERS.outgoing(number)).collect();
        let some = |what: fn(&Outgoing) -> bool| {
            let count = all.iter().filter(|message| what(message)).count();
            assert!((10..390).contains(&count), "{count}");
        };
        some(|message| message.payload.len() == NUMBER_LEN);
        some(|message| message.payload.len() > 4096);
        some(|message| message.idempotency_key.is_some());
        some(|message| message.group.is_some());
        some(|message| !message.attributes.is_empty());
    }
}

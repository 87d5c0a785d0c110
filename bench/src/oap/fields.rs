//! Looks into protobuf without taking it apart: a client that reads answers in full would be most
//! of what is measured.

/// Where a reply has what was received, where that has envelopes, and those their handles.
const RECEIVED: u64 = 3;
const MESSAGES: u64 = 1;
const RECEIPT_HANDLE: u64 = 12;

/// The receipt handles in the answer to a receive.
pub(super) fn handles(reply: &[u8]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let envelopes = named(reply, RECEIVED).flat_map(|received| named(received, MESSAGES));
    envelopes.flat_map(|envelope| named(envelope, RECEIPT_HANDLE)).map(text).collect()
}

/// What is in all fields with this number that have a length.
fn named(bytes: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    Fields(bytes).filter(move |(other, _)| *other == number).map(|(_, value)| value)
}

/// Numbers and contents of fields; those that are numbers have none.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = self.varint()?;
        match tag & 7 {
            0 => Some((tag >> 3, &[])),
            2 => {
                let (value, rest) = self.0.split_at_checked(usize::try_from(value).ok()?)?;
                self.0 = rest;
                Some((tag >> 3, value))
            }
            // Our answers have no others.
            _ => None,
        }
    }
}

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let end = self.0.iter().take(10).position(|byte| byte & 0x80 == 0)?;
        let (digits, rest) = self.0.split_at(end + 1);
        self.0 = rest;
        Some(digits.iter().rev().fold(0, |sum, digit| sum << 7 | u64::from(digit & 0x7f)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mailbox_wire::call::Reply;
    use mailbox_wire::hash::Hash;
    use mailbox_wire::json::{Envelope, Ok, Received};
    use mailbox_wire::payload::Payload;
    use mailbox_wire::proto::write_reply;

    use super::*;

    fn envelope(handle: Option<&str>) -> Envelope {
        Envelope {
            msg_id: "id".into(),
            topic: "jobs".into(),
            ts: "now".into(),
            idem_key: None,
            payload_hash: Hash::of_payload(b""),
            attrs: Default::default(),
            corr_id: String::new(),
            shard: 3,
            attempt: 1,
            hash_chain: Hash::of_payload(b""),
            sig: None,
            receipt_handle: handle.map(str::to_owned),
            visible_until_ms: Some(1 << 40),
            reply_to: None,
            group: None,
            partition: None,
            traceparent: None,
            payload_b64: Payload(Bytes::from(vec![0x62; 1024])),
        }
    }

    #[test]
    fn handles_are_found_in_what_was_received() {
        for wanted in [vec![], vec!["jobs/1"], vec!["jobs/1", "jobs/22", "jobs/333"]] {
            let messages = wanted.iter().map(|handle| envelope(Some(handle))).collect();
            let mut bytes = Vec::new();
            write_reply(Reply::Received(Received { messages }), &mut bytes);
            assert_eq!(handles(&bytes), wanted);
        }
        let mut bytes = Vec::new();
        write_reply(Reply::Done(Ok { ok: true }), &mut bytes);
        assert_eq!(handles(&bytes), Vec::<String>::new());
    }
}

//! A client of NATS `JetStream`. A message is published to a stream, which says that it has it; it
//! is pulled from a consumer, and acknowledged with an answer, as with ours.

use crate::http::peers::line_end;
use crate::oap::PAYLOAD_LEN;
use crate::oap::asker::Load;
use crate::oap::talk::{Heard, Talker};

/// Subject of the stream, and what its API knows them by.
pub(super) const SUBJECT: &str = "jobs";
pub(super) const STREAM: &str = "JOBS";
pub(super) const CONSUMER: &str = "all";
/// What comes before everything else, but for the inbox.
pub(super) const CONNECT: &str =
    "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";
/// Where answers go.
pub(super) const INBOX: &str = "_INBOX.";
/// Whose answer it is does not matter: all ask the same.
const ANY: usize = 1;

/// One connection.
pub(super) struct Nats {
    inbox: String,
    request: Vec<u8>,
}

impl Nats {
    /// One message to a request, whatever the load says.
    pub(super) fn new(load: Load) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

        let inbox = format!("{INBOX}{}", CONNECTIONS.fetch_add(1, Ordering::Relaxed));
        let (subject, body) = match load {
            Load::Sends(_) => (SUBJECT.to_owned(), "b".repeat(PAYLOAD_LEN)),
            Load::Cycles(_) => {
                let next = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}");
                (next, "{\"batch\":1,\"no_wait\":true}".to_owned())
            }
        };
        let request = publish(&subject, &inbox, &body).into_bytes();
        Self { inbox, request }
    }
}

/// Publishes, with a subject for the answer.
pub(super) fn publish(subject: &str, inbox: &str, body: &str) -> String {
    format!("PUB {subject} {inbox} {}\r\n{body}\r\n", body.len())
}

impl Talker for Nats {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{CONNECT}SUB {} 1\r\n", self.inbox).as_bytes());
    }

    fn ask(&mut self, _slot: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<(usize, Heard)> {
        let Said { len, subject, reply, body } = said(bytes)?;
        let heard = match (subject, reply) {
            (b"PING", _) => {
                out.extend_from_slice(b"PONG\r\n");
                Heard::Aside
            }
            (b"INFO" | b"PONG", _) => Heard::Aside,
            (b"jobs", Some(reply)) => {
                // A message; it is acknowledged where it says.
                for part in [b"PUB ", reply, b" ", self.inbox.as_bytes(), b" 4\r\n+ACK\r\n"] {
                    out.extend_from_slice(part);
                }
                Heard::Aside
            }
            _ if body.starts_with(b"NATS/1.0 404 ") => Heard::Nothing,
            _ => {
                // That it is in the stream, or that it is acknowledged. If there were no stream,
                // the answer would be that nobody takes the message, which is an error here.
                let is_good = body.is_empty() || body.starts_with(b"{\"stream\":");
                assert!(is_good, "{}", String::from_utf8_lossy(&bytes[..len]));
                Heard::Done(ANY, 1)
            }
        };
        Some((len, heard))
    }
}

/// What the server has said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said<'a> {
    /// All of it.
    len: usize,
    /// Of a message; otherwise the first word.
    subject: &'a [u8],
    reply: Option<&'a [u8]>,
    /// With headers, if there are some.
    pub(super) body: &'a [u8],
}

impl Said<'_> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Whether it answers a request.
    pub(super) fn is_answer(&self) -> bool {
        self.subject.starts_with(INBOX.as_bytes())
    }
}

/// What comes next, if it is all there.
pub(super) fn said(bytes: &[u8]) -> Option<Said<'_>> {
    let end = line_end(bytes, 0)?;
    // As many words as a message with headers and a subject for an answer has.
    let mut words = [&[][..]; 6];
    let mut count = 0;
    for word in bytes[..end - 2].split(|byte| *byte == b' ').take(words.len()) {
        words[count] = word;
        count += 1;
    }
    let has_reply = match words[0] {
        b"MSG" => count == 5,
        b"HMSG" => count == 6,
        first => return Some(Said { len: end, subject: first, reply: None, body: &[] }),
    };
    let body_len = std::str::from_utf8(words[count - 1]).ok().and_then(|it| it.parse().ok());
    let body_end = end + body_len.unwrap_or(0_usize);
    let body = bytes.get(end..body_end)?;
    let len = body_end + 2;
    let reply = has_reply.then_some(words[3]);
    (bytes.len() >= len).then_some(Said { len, subject: words[1], reply, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_when_it_is_all_there() {
        let ack = "$JS.ACK.JOBS.all.1.1.1.5.4";
        let message = format!("MSG jobs 1 {ack} 3\r\na\r\n\r\n");
        let sent = "MSG _INBOX.7 1 25\r\n{\"stream\":\"JOBS\",\"seq\":1}\r\n";
        let empty = "HMSG _INBOX.7 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n";
        let settled = "MSG _INBOX.7 1 0\r\n\r\n";
        for (text, expected) in [
            (message.as_str(), Heard::Aside),
            (sent, Heard::Done(ANY, 1)),
            (empty, Heard::Nothing),
            (settled, Heard::Done(ANY, 1)),
            ("PING\r\n", Heard::Aside),
            ("INFO {\"a\": 1} \r\n", Heard::Aside),
        ] {
            let mut client = Nats { inbox: "_INBOX.7".to_owned(), request: Vec::new() };
            let mut out = Vec::new();
            for less in 0..text.len() {
                assert_eq!(client.hear(&text.as_bytes()[..less], &mut out), None, "{text} {less}");
            }
            let with_more = format!("{text}MSG");
            let heard = client.hear(with_more.as_bytes(), &mut out);
            assert_eq!(heard, Some((text.len(), expected)), "{text}");
            let said = match text {
                "PING\r\n" => "PONG\r\n".to_owned(),
                _ if text == message => publish(ack, "_INBOX.7", "+ACK"),
                _ => String::new(),
            };
            assert_eq!(String::from_utf8_lossy(&out), said);
        }
    }
}

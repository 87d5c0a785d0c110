//! A client of beanstalkd, which answers in the order in which it is asked.

use std::net::SocketAddr;
use std::time::Duration;

use super::race::Peer;
use crate::http::peers::{Beanstalkd, beanstalk_end, line_end};
use crate::oap::asker::Load;
use crate::oap::talk::{Heard, Talker, turn};
use crate::oap::{MANY, PAYLOAD_LEN};

/// Whose answer it is does not matter: all ask the same.
const ANY: usize = 1;
/// A turn that throws everything away ends when there is nothing left.
const LONG: Duration = Duration::from_secs(600);

impl Peer for Beanstalkd {
    type Talker = Beanstalk;

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn talker(load: Load) -> Beanstalk {
        Beanstalk::new(load)
    }

    /// It has no call for that: everything is reserved and deleted.
    async fn empty(&self) -> u64 {
        let mut emptied = 0;
        loop {
            // A turn has an end of its own, by its messages.
            let cycles = || Beanstalk::new(Load::Cycles(1));
            match turn(self.address, MANY, LONG, cycles).await.messages {
                0 => return emptied,
                some => emptied += some,
            }
        }
    }
}

/// One connection.
pub(super) struct Beanstalk {
    request: Vec<u8>,
}

impl Beanstalk {
    /// One message to a request, whatever the load says: it has no batches.
    fn new(load: Load) -> Self {
        let body = "b".repeat(PAYLOAD_LEN);
        let request = match load {
            Load::Sends(_) => format!("put 0 0 60 {PAYLOAD_LEN}\r\n{body}\r\n"),
            Load::Cycles(_) => "reserve-with-timeout 0\r\n".to_owned(),
        };
        Self { request: request.into_bytes() }
    }
}

impl Talker for Beanstalk {
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    fn ask(&mut self, _slot: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<(usize, Heard)> {
        let end = beanstalk_end(bytes)?;
        let line = &bytes[..line_end(bytes, 0)?];
        let heard = if let Some(rest) = line.strip_prefix(b"RESERVED ") {
            let id = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
            out.extend_from_slice(b"delete ");
            out.extend_from_slice(id);
            out.extend_from_slice(b"\r\n");
            Heard::Aside
        } else if line.starts_with(b"INSERTED ") || line == b"DELETED\r\n" {
            Heard::Done(ANY, 1)
        } else {
            let text = String::from_utf8_lossy(line);
            assert_eq!(text, "TIMED_OUT\r\n", "nothing but this means that it is empty");
            Heard::Nothing
        };
        Some((end, heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reserved_is_deleted_and_counted_then() {
        let mut client = Beanstalk::new(Load::Cycles(1));
        let mut out = Vec::new();
        let bytes = b"RESERVED 17 3\r\na\r\n\r\nDELETED\r\n";
        for less in 0..20 {
            assert_eq!(client.hear(&bytes[..less], &mut out), None, "{less}");
        }
        assert_eq!(client.hear(bytes, &mut out), Some((20, Heard::Aside)));
        assert_eq!(out, b"delete 17\r\n");
        assert_eq!(client.hear(&bytes[20..], &mut out), Some((9, Heard::Done(ANY, 1))));
        assert_eq!(client.hear(b"TIMED_OUT\r\n", &mut out), Some((11, Heard::Nothing)));
    }
}

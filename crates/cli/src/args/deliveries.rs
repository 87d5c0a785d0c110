//! Arguments of the commands that move messages in and out: send, receive and settling.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as Arguments;

use super::values::{duration, pair};

pub(super) const SEND: &str = "\
The payload is exactly the bytes given: nothing is added, removed or encoded.

Examples:
  mailbox send dir:./inbox/jobs 'hello'
  mailbox send dir:./inbox/jobs '{\"resize\": \"cat.png\"}' --delay 5m --attr source=cli
  date | mailbox send dir:./inbox/jobs             the payload is what comes on stdin
  mailbox send dir:./inbox/jobs --file cat.png     the payload is what is in a file
  mailbox send dir:./inbox/jobs --lines < list     one message a line

With --lines a --key is a prefix: line 7 has the key KEY:7. Sending the same lines again within
the mailbox's replay window (5 minutes by default) then sends only those that are missing.";

/// `mailbox send`
#[derive(Debug, Arguments)]
pub(crate) struct Send {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// The payload; `-`, or nothing, means what comes on stdin.
    #[arg(conflicts_with_all = ["file", "lines"], allow_negative_numbers = true)]
    pub(crate) body: Option<OsString>,
    /// The payload is in this file.
    #[arg(long, value_name = "PATH", conflicts_with = "lines")]
    pub(crate) file: Option<PathBuf>,
    /// One message for each line of stdin, without its newline.
    #[arg(long)]
    pub(crate) lines: bool,
    /// The message becomes receivable after this long, at most 12h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) delay: Option<Duration>,
    /// Kept with the message; can be said several times.
    #[arg(long = "attr", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) attributes: Vec<(String, String)>,
    /// Name or address of the mailbox for replies.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) reply_to: Option<String>,
    /// A second send with the same key and payload is recognised, and sends nothing.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Ordering group: at most one message of a group is in flight, in order.
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Print {"id", "duplicate"}, one object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const RECEIVE: &str = "\
The payload goes to stdout as it is, with a newline if it has none at its end. The id and the
receipt handle, for ack, nack and extend, go to stderr; --json has all of it, one object a line:
id, body (where the payload is not JSON: payload_b64, and text if it is UTF-8), receipt_handle,
delivery_count, enqueued_at, attributes, reply_to, key, group.

A message that is not acknowledged within --visibility is delivered again.

Examples:
  mailbox receive dir:./inbox/jobs --ack                 take one message, and be done with it
  mailbox receive dir:./inbox/jobs --wait 20s            wait for one
  mailbox receive dir:./inbox/jobs --follow --ack        print everything that comes, until Ctrl-C
  mailbox receive dir:./inbox/jobs --json | jq '.body // .text'
  mailbox receive dir:./inbox/jobs --exec ./job.sh -v    run a command for one message (see work)
  while mailbox receive dir:./inbox/jobs --ack; do :; done

Exit codes: 0 something was received; 3 there was nothing to receive. With --follow 0 when
interrupted. With --exec 1 if the command failed: its message was given back, and becomes a dead
letter at its next turn if its attempts are used up; 3 if its lease was lost; 6 if the answer to
its settlement was lost: it may be settled, or come again.";

/// `mailbox receive`
#[derive(Debug, Arguments)]
pub(crate) struct Receive {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// At most this many messages at a time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) max: u32,
    /// Wait up to this long for the first one.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    pub(crate) wait: Duration,
    /// Hide them from others for this long, at most 12h.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) visibility: Duration,
    /// Acknowledge each message once it has been printed. If nobody reads it, it is given back.
    #[arg(long)]
    pub(crate) ack: bool,
    /// Go on, and print messages as they come, until interrupted.
    #[arg(long)]
    pub(crate) follow: bool,
    /// With --follow: stop after this many messages.
    #[arg(long, value_name = "N", requires = "follow")]
    pub(crate) count: Option<u64>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run this command for one message, as `work` does: exit 0 acknowledges. Takes all that
    /// follows.
    #[arg(
        long,
        value_name = "CMD",
        num_args = 1..,
        allow_hyphen_values = true,
        conflicts_with_all = ["ack", "follow", "max", "json"]
    )]
    pub(crate) exec: Vec<OsString>,
}

/// Deliveries, by their receipt handles.
#[derive(Debug, Arguments)]
pub(crate) struct Handles {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Receipt handles of deliveries; `-` reads them from stdin, one a line.
    #[arg(required = true, value_name = "HANDLE")]
    pub(crate) handles: Vec<String>,
    /// Print {"receipt_handle", "ok", "error"}, one object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const ACK: &str = "\
Examples:
  mailbox ack dir:./inbox/jobs HANDLE
  mailbox receive dir:./inbox/jobs --max 10 --json | jq -r .receipt_handle |
    mailbox ack dir:./inbox/jobs -

Each handle has its own result; the exit code is that of the worst. 3 means that the delivery is
over: its visibility timeout has ended, it was settled, or the handle is not of this mailbox.";

/// `mailbox ack`
#[derive(Debug, Arguments)]
pub(crate) struct Ack {
    #[command(flatten)]
    pub(crate) handles: Handles,
}

pub(super) const NACK: &str = "\
Examples:
  mailbox nack dir:./inbox/jobs HANDLE
  mailbox nack dir:./inbox/jobs HANDLE --delay 5m --error 'the printer is out of paper'

Exit codes: as for ack.";

/// `mailbox nack`
#[derive(Debug, Arguments)]
pub(crate) struct Nack {
    #[command(flatten)]
    pub(crate) handles: Handles,
    /// Receivable again after this long, at most 12h.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    pub(crate) delay: Duration,
    /// What went wrong; kept with the message.
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
}

pub(super) const EXTEND: &str = "\
Examples:
  mailbox extend dir:./inbox/jobs HANDLE --visibility 4m

A mailbox can have a bound on how long one delivery is held in all, extensions included; a service
has one, ten times what it was received with. Who needs longer receives with a longer --visibility.

Exit codes: as for ack.";

/// `mailbox extend`
#[derive(Debug, Arguments)]
pub(crate) struct Extend {
    #[command(flatten)]
    pub(crate) handles: Handles,
    /// Hide them for this long, from now; at most 12h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) visibility: Duration,
}

pub(super) const REJECT: &str = "\
Examples:
  mailbox reject dir:./inbox/jobs HANDLE --reason 'no such customer'
  mailbox dead list dir:./inbox/jobs

Exit codes: as for ack.";

/// `mailbox reject`
#[derive(Debug, Arguments)]
pub(crate) struct Reject {
    #[command(flatten)]
    pub(crate) handles: Handles,
    /// Why, in your words; kept with the dead letter.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

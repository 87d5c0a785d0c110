//! Arguments of the commands that go on for a while: workers, calls, measurements.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args as Arguments;

use super::values::{duration, pair};

pub(super) const WORK: &str = "\
The payload comes on the command's stdin, what else is known in its environment: MAILBOX_ID,
MAILBOX_ADDRESS, MAILBOX_RECEIPT_HANDLE, MAILBOX_DELIVERY_COUNT, MAILBOX_ENQUEUED_AT,
MAILBOX_REPLY_TO, MAILBOX_ATTRIBUTES (JSON).

  exit 0        its stdout is sent as the reply, if the message asks for one; then acknowledged
  other exit    nacked: delivered again after a backoff, with its last line of stderr as the error;
                if its attempts are used up, it becomes a dead letter then
  lease lost    the command is ended, and nothing is settled: somebody else has the message
  in doubt      the answer of a service to the settlement was lost: the message is settled, or comes
                again

The message stays hidden from others for as long as the command runs, unless its mailbox has a bound
on that: a service has one, ten times --visibility. Longer than that and the lease is lost, so let
--visibility be a tenth of the longest job. Deliveries are at least once: a command can meet the
same message twice. SIGTERM or Ctrl-C stops receiving and lets running
commands finish; a second one ends them at once.

The command's stdout is the reply if the message has a reply address; otherwise it goes to stdout,
with --json to stderr.

At a service it needs a capability with the ops recv, ack and nack; to reply, with send for the
mailboxes that replies go to.

Exit codes: 0 also if commands failed, for their messages were given back, and after Ctrl-C or
SIGTERM; 3 or 4 if the command cannot be run.

Examples:
  mailbox work dir:./inbox/jobs -- ./job.sh
  mailbox work dir:./inbox/jobs -j 4 --backoff 5s -- python3 job.py --fast
  mailbox work dir:./inbox/jobs --idle-exit 5s -- sh -c 'cat >> all.log'";

/// How commands are run for messages.
#[derive(Debug, Clone, Arguments)]
pub(crate) struct Working {
    /// A failed message is delivered again after this long, times its deliveries, at most 15m.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub(crate) backoff: Duration,
    /// How long running commands may go on after SIGTERM.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) drain: Duration,
    /// How long a command that is told to end may take before it is killed.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) grace: Duration,
    /// Also reply to addresses there: SCHEME:PATH, SCHEME://HOST or SCHEME: for any. By default
    /// replies go to mailboxes beside this one only, which a bare name means everywhere. A service
    /// that is allowed is shown MAILBOX_CAP, and no other capability.
    #[arg(long, value_name = "WHERE")]
    pub(crate) allow_reply: Vec<String>,
}

impl Working {
    /// For one message: as they are by default.
    pub(crate) fn once() -> Self {
        Self {
            backoff: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            allow_reply: Vec::new(),
        }
    }
}

/// `mailbox work`
#[derive(Debug, Arguments)]
pub(crate) struct Work {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Run up to this many commands at a time.
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: u16,
    /// Hide messages from others for this long at a time, at most 12h; renewed while the command
    /// runs.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub(crate) visibility: Duration,
    #[command(flatten)]
    pub(crate) working: Working,
    /// Stop after this many messages.
    #[arg(long, value_name = "N")]
    pub(crate) max_messages: Option<u64>,
    /// Stop when nothing has come for this long.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle_exit: Option<Duration>,
    /// Print {"id", "delivery_count", "outcome", "error"} for each message, one a line. Outcomes
    /// are done, failed, lost, in_doubt and given_back.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command, and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

pub(super) const CALL: &str = "\
Examples:
  mailbox call dir:./inbox/jobs '2 + 2'
  mailbox call dir:./inbox/jobs - --timeout 5m < question.json

For the reply a mailbox of its own is made beside this one, and removed afterwards. If the time is
over the request may still be worked on. --json prints the reply as `receive --json` does.

At a service it needs a capability with the op send for the mailbox, and for reply-* with recv and
ack, and with admin to remove it: without admin it stays behind, which is said. Whoever replies
needs send for reply-*.

Exit codes: 6 no reply in time.";

/// `mailbox call`
#[derive(Debug, Arguments)]
pub(crate) struct Call {
    /// The mailbox that somebody works on, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// The payload; `-`, or nothing, means what comes on stdin.
    #[arg(allow_negative_numbers = true)]
    pub(crate) body: Option<OsString>,
    /// Wait this long for the reply.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) timeout: Duration,
    /// Kept with the request; can be said several times.
    #[arg(long = "attr", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) attributes: Vec<(String, String)>,
    /// Print the reply as `receive --json` does.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const BENCH: &str = "\
The messages go into a mailbox of their own beside the one named, which is removed afterwards. With
several addresses each is measured, and compared with the first; --json prints an array then.

Examples:
  mailbox bench dir:./inbox/jobs
  mailbox bench journal:data/jobs --messages 100000 --producers 16 --batch 64
  mailbox bench http://127.0.0.1:7600/jobs grpc://127.0.0.1:7600/jobs oap://127.0.0.1:7601/jobs";

/// `mailbox bench`
#[derive(Debug, Arguments)]
pub(crate) struct Bench {
    /// A mailbox, such as dir:./inbox/jobs; it is not touched itself. Several are compared with the
    /// first.
    #[arg(required = true, num_args = 1..=8, value_name = "ADDRESS")]
    pub(crate) addresses: Vec<String>,
    /// How many messages.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) messages: u64,
    /// Bytes in each payload.
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    pub(crate) size: usize,
    /// How many send, and how many receive, at the same time.
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) producers: u16,
    /// Messages in each call.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch: u16,
    /// Print one JSON document; of several addresses, an array.
    #[arg(long)]
    pub(crate) json: bool,
}

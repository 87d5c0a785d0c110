//! Arguments of the commands that look and change nothing.

use clap::Args as Arguments;

pub(super) const PEEK: &str = "\
Examples:
  mailbox peek dir:./inbox/jobs                  the oldest messages, one a line
  mailbox peek dir:./inbox/jobs --max 5 --json
  mailbox peek dir:./inbox/jobs --id ID          one message, in whatever state

The JSON has body; or, where the payload is not JSON, payload_b64, and text if it is UTF-8.

Exit codes: 3 if a named message is not there.";

/// `mailbox peek`
#[derive(Debug, Arguments)]
pub(crate) struct Peek {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// At most this many messages.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) max: u32,
    /// Show this message, in whatever state; can be said several times.
    #[arg(long = "id", value_name = "ID", conflicts_with = "max")]
    pub(crate) ids: Vec<String>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const COUNT: &str = "\
Examples:
  mailbox count dir:./inbox/jobs
  test \"$(mailbox count dir:./inbox/jobs)\" -eq 0 && echo empty";

/// `mailbox count`
#[derive(Debug, Arguments)]
pub(crate) struct Count {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Print {"count"}.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const STATS: &str = "\
Examples:
  mailbox stats dir:./inbox/jobs
  mailbox stats dir:./inbox/jobs --json | jq .dead";

/// `mailbox stats`
#[derive(Debug, Arguments)]
pub(crate) struct Stats {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const LIST: &str = "\
Examples:
  mailbox list                   the mailboxes of the service of this machine
  mailbox list dir:./inbox       the inboxes in the folder ./inbox
  mailbox list journal:data      the mailboxes of the journal in the directory data
  mailbox list dir:./inbox --json | jq -r .address";

/// `mailbox list`
#[derive(Debug, Arguments)]
pub(crate) struct List {
    /// An address without its last part, the name: dir:PATH, journal:PATH, redis://HOST, http:,
    /// grpc: or oap://HOST; nothing for the service of this machine.
    pub(crate) place: Option<String>,
    /// Print {"name", "address"}, one object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const EXPLAIN: &str = "\
Examples:
  mailbox explain dir:./inbox/jobs 01JA2ZQ4V6Z0Y8X7W5T3R1P9N8
  mailbox explain dir:./inbox/jobs ID --json

A message whose attempts are used up becomes a dead letter when it would be delivered once more.

Exit codes: 3 if it is not there: acknowledged, deleted, or never sent.";

/// `mailbox explain`
#[derive(Debug, Arguments)]
pub(crate) struct Explain {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// The id of the message, as `send` printed it.
    pub(crate) id: String,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

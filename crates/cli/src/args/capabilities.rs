//! Arguments of the commands about capabilities.

use std::time::Duration;

use clap::{Args as Arguments, Subcommand};
use mailbox_server::settings::size;

use super::values::duration;

pub(super) const CAP: &str = "\
A capability says who may do what to which mailboxes, and until when. Whoever has one can use it, so
it is as secret as a password: what is on a command line can be seen by others on this machine, what
comes on stdin (-) or in MAILBOX_CAP other users cannot see.

Examples:
  mailbox cap mint --op send --topic jobs --ttl 1h       may send to jobs for an hour
  mailbox cap mint --op recv,ack,nack --topic 'jobs*' --ttl 30d > worker.cap
  MAILBOX_CAP=$(cat worker.cap) mailbox receive jobs
  mailbox cap attenuate - --topic jobs-a < worker.cap    narrower, without asking the service
  mailbox cap inspect - < worker.cap
  mailbox cap revoke - < worker.cap
  mailbox cap rotate --grace 24h                         a new root key";

const MINT: &str = "\
Prints the capability alone.

Examples:
  mailbox cap mint --op send,recv,ack,nack,admin --topic 'jobs*' --ttl 1h
  mailbox cap mint --op send --topic jobs --ttl 1d --rate 100/s --max-bytes 64KiB
  mailbox cap mint --op recv,ack --ttl 1h --ip 10.0.0.0/8 --json | jq -r .token_id";

const ATTENUATE: &str = "\
Every caveat has to hold, so what is added can only narrow. No service is asked, and no key needed.

Examples:
  mailbox cap attenuate - --op recv --ttl 10m < worker.cap
  mailbox cap mint --op send --ttl 1d | mailbox cap attenuate --topic jobs";

const INSPECT: &str = "\
Nothing is verified: only the service that made a capability can tell whether it is good.

Examples:
  mailbox cap inspect - < worker.cap
  mailbox cap inspect --json < worker.cap | jq .expired";

const REVOKE: &str = "\
All that were narrowed from it go with it. It is on disk when this ends.

Examples:
  mailbox cap revoke zc4f8k2mq9xw7n3hb5tj
  mailbox cap revoke - < worker.cap";

const ROTATE: &str = "\
What the old key has made is good for as long as --grace says, with 0 no longer at all. The operator
gets a new capability, in the data directory.

Examples:
  mailbox cap rotate
  mailbox cap rotate --grace 0      everything that was made is worthless at once";

/// `mailbox cap`
#[derive(Debug, Arguments)]
pub(crate) struct Cap {
    #[command(subcommand)]
    pub(crate) command: CapCommand,
}

impl Cap {
    pub(super) const fn is_json(&self) -> bool {
        match &self.command {
            CapCommand::Mint(args) => args.json,
            CapCommand::Attenuate(_) => false,
            CapCommand::Inspect(args) => args.json,
            CapCommand::Revoke(args) => args.json,
            CapCommand::Rotate(args) => args.json,
        }
    }
}

/// What to do with capabilities.
#[derive(Debug, Subcommand)]
pub(crate) enum CapCommand {
    /// Make a capability; prints it.
    #[command(after_help = MINT)]
    Mint(Mint),
    /// Make a narrower capability from one, offline; prints it.
    #[command(after_help = ATTENUATE)]
    Attenuate(Attenuate),
    /// Show what is in a capability, offline.
    #[command(after_help = INSPECT)]
    Inspect(Inspect),
    /// Take a capability back.
    #[command(after_help = REVOKE)]
    Revoke(Revoke),
    /// Replace the root key that capabilities are made with.
    #[command(after_help = ROTATE)]
    Rotate(Rotate),
}

/// What has to hold.
#[derive(Debug, Arguments)]
pub(crate) struct Caveats {
    /// Only these mailboxes, by name or by how their names begin: jobs, 'tenant-a:*'.
    #[arg(long = "topic", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) topics: Vec<String>,
    /// No more often than this: 100/s, 100/m, 100/h.
    #[arg(long)]
    pub(crate) rate: Option<String>,
    /// No request larger than this, such as 64KiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_bytes: Option<u64>,
    /// No more operations than this, ever.
    #[arg(long, value_name = "N")]
    pub(crate) quota_ops: Option<u64>,
    /// No more bytes than this, ever.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) quota_bytes: Option<u64>,
    /// Only from these networks: 10.0.0.0/8,::1.
    #[arg(long, value_name = "NETS")]
    pub(crate) ip: Option<String>,
    /// Only for this tenant: for programs that say theirs, in X-Tenant of HTTP and gRPC or in
    /// tenant_id of OAP/1.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Not before this, such as 2030-01-01T00:00:00Z.
    #[arg(long, value_name = "MOMENT")]
    pub(crate) nbf: Option<String>,
    /// Another caveat as it is written: 'key = value'. Can be said several times.
    #[arg(long = "caveat", value_name = "CAVEAT")]
    pub(crate) others: Vec<String>,
}

/// `mailbox cap mint`
#[derive(Debug, Arguments)]
pub(crate) struct Mint {
    /// What it allows: send, recv, ack, nack, admin; several with commas.
    #[arg(long = "op", value_name = "OPS", value_delimiter = ',', required = true)]
    pub(crate) ops: Vec<String>,
    /// For how long; as long as the service allows if it is not said.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) caveats: Caveats,
    /// Print {"capability", "token_id", "expires_at"}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mailbox cap attenuate`
#[derive(Debug, Arguments)]
pub(crate) struct Attenuate {
    /// The capability; - or nothing reads it from stdin, where nobody else sees it.
    #[arg(value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Only these: send, recv, ack, nack, admin; several with commas.
    #[arg(long = "op", value_name = "OPS", value_delimiter = ',')]
    pub(crate) ops: Vec<String>,
    /// For how long from now.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "exp")]
    pub(crate) ttl: Option<Duration>,
    /// Until when, such as 2030-01-01T00:00:00Z.
    #[arg(long, value_name = "MOMENT")]
    pub(crate) exp: Option<String>,
    #[command(flatten)]
    pub(crate) caveats: Caveats,
}

/// `mailbox cap inspect`
#[derive(Debug, Arguments)]
pub(crate) struct Inspect {
    /// The capability; - or nothing reads it from stdin, where nobody else sees it.
    #[arg(value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mailbox cap revoke`
#[derive(Debug, Arguments)]
pub(crate) struct Revoke {
    /// The id of the capability, as `inspect` shows it; - reads the capability from stdin.
    #[arg(value_name = "TOKEN_ID")]
    pub(crate) token_id: String,
    /// Print {"token_id"}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mailbox cap rotate`
#[derive(Debug, Arguments)]
pub(crate) struct Rotate {
    /// How long the old key is still good; as the service is set if it is not said.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Print {"kid", "previous_until"}.
    #[arg(long)]
    pub(crate) json: bool,
}

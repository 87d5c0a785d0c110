//! Arguments of the commands that run a service and look at its settings.

use std::path::PathBuf;

use clap::{Args as Arguments, Subcommand};

use super::flags::Flags;

pub(super) const SERVE: &str = "\
The first start makes a root key and an operator capability in the data directory. Commands on this
machine find it there; from elsewhere nothing works without a capability: see `mailbox cap mint`.

HTTP and gRPC are on the port of --listen, OAP/1 is on that of --oap; with certificates all of them
have TLS, and are addressed as https:, grpcs: and oaps:.

Every setting is also a variable (--shard-capacity: MAILBOX_SHARD_CAPACITY) and a key of the TOML
file (shard_capacity). A flag is before the environment is before the file. SIGHUP reads the file
again; SIGTERM and Ctrl-C let calls that are worked on end, a second one does not.

The profile micronode writes no file at all: it prints the operator capability once, when it starts.

Examples:
  mailbox serve
  mailbox serve --store redis://localhost --data /var/lib/mailbox
  mailbox serve --listen 0.0.0.0:7600 --tls-cert cert.pem --tls-key key.pem
  mailbox serve --profile micronode
  mailbox serve --config mailbox.toml --log debug --log-format json";

/// What was said about settings.
#[derive(Debug, Arguments)]
pub(crate) struct Said {
    /// A TOML file with settings; MAILBOX_CONFIG in the environment.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// `mailbox serve`
#[derive(Debug, Arguments)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) said: Said,
}

pub(super) const CONFIG: &str = "\
Examples:
  mailbox config check --config mailbox.toml
  mailbox config show --config mailbox.toml
  mailbox config show --json | jq -r '.shards.value'";

const CONFIG_CHECK: &str = "\
Examples:
  mailbox config check --config mailbox.toml && systemctl reload mailbox

Exit codes: 2 if something is wrong; it says what and where.";

const CONFIG_SHOW: &str = "\
Examples:
  mailbox config show
  mailbox config show --config mailbox.toml --shards 16
  mailbox config show --json | jq -r '.shards.source'";

/// `mailbox config`
#[derive(Debug, Arguments)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

impl Config {
    pub(super) const fn is_json(&self) -> bool {
        match &self.command {
            ConfigCommand::Check(_) => false,
            ConfigCommand::Show(args) => args.json,
        }
    }
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether these settings can be read and fit together; touches no disk and no network.
    #[command(after_help = CONFIG_CHECK)]
    Check(Said),
    /// Show every setting, and where it comes from.
    #[command(after_help = CONFIG_SHOW)]
    Show(Show),
}

/// `mailbox config show`
#[derive(Debug, Arguments)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) said: Said,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

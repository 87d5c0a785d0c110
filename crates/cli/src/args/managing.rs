//! Arguments of the commands that change what is there: init, dead letters, purge, move, doctor.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Arguments, Subcommand};
use clap_complete::Shell;
use mailbox::DeadReason;

use super::values::{dead_reason, duration};

pub(super) const DEAD: &str = "\
Examples:
  mailbox dead list dir:./inbox/jobs
  mailbox dead show dir:./inbox/jobs ID
  mailbox dead redrive dir:./inbox/jobs ID               back in line, starting at delivery 1
  mailbox dead redrive dir:./inbox/jobs --reason max_attempts
  mailbox dead delete dir:./inbox/jobs --all --yes";

const DEAD_LIST: &str = "\
Examples:
  mailbox dead list dir:./inbox/jobs
  mailbox dead list dir:./inbox/jobs --reason rejected --json";

const DEAD_SHOW: &str = "\
Examples:
  mailbox dead show dir:./inbox/jobs ID
  mailbox dead show dir:./inbox/jobs ID --json | jq '.body // .text'";

const DEAD_REDRIVE: &str = "\
Examples:
  mailbox dead redrive dir:./inbox/jobs ID ID
  mailbox dead redrive dir:./inbox/jobs --oldest 10
  mailbox dead redrive dir:./inbox/jobs --all";

const DEAD_DELETE: &str = "\
Examples:
  mailbox dead delete dir:./inbox/jobs ID
  mailbox dead delete dir:./inbox/jobs --reason expired --yes";

/// `mailbox dead`
#[derive(Debug, Arguments)]
pub(crate) struct Dead {
    #[command(subcommand)]
    pub(crate) command: DeadCommand,
}

impl Dead {
    pub(super) const fn is_json(&self) -> bool {
        match &self.command {
            DeadCommand::List(args) => args.json,
            DeadCommand::Show(args) => args.json,
            DeadCommand::Redrive(args) => args.json,
            DeadCommand::Delete(args) => args.json,
        }
    }
}

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead letters, the oldest first.
    #[command(after_help = DEAD_LIST)]
    List(DeadList),
    /// Show dead letters with their payload, and how they died.
    #[command(after_help = DEAD_SHOW)]
    Show(DeadShow),
    /// Put dead letters back in line, starting at delivery 1.
    #[command(after_help = DEAD_REDRIVE)]
    Redrive(DeadRedrive),
    /// Delete dead letters for good.
    #[command(after_help = DEAD_DELETE)]
    Delete(DeadDelete),
}

/// `mailbox dead list`
#[derive(Debug, Arguments)]
pub(crate) struct DeadList {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Only those that died of this: max_attempts, expired, rejected, integrity, decode.
    #[arg(long, value_parser = dead_reason)]
    pub(crate) reason: Option<DeadReason>,
    /// At most this many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) max: u64,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mailbox dead show`
#[derive(Debug, Arguments)]
pub(crate) struct DeadShow {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Ids of dead letters.
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which dead letters.
#[derive(Debug, Arguments)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Ids of dead letters.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// All there are.
    #[arg(long)]
    pub(crate) all: bool,
    /// All that died of this: max_attempts, expired, rejected, integrity, decode.
    #[arg(long, value_parser = dead_reason)]
    pub(crate) reason: Option<DeadReason>,
    /// The oldest, at most this many.
    #[arg(long, value_name = "N")]
    pub(crate) oldest: Option<u64>,
}

/// `mailbox dead redrive`
#[derive(Debug, Arguments)]
pub(crate) struct DeadRedrive {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print {"redriven"}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mailbox dead delete`
#[derive(Debug, Arguments)]
pub(crate) struct DeadDelete {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print {"deleted"}.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const PURGE: &str = "\
Examples:
  mailbox purge dir:./inbox/jobs           asks first
  mailbox purge dir:./inbox/jobs --yes     does not, for scripts

Dead letters stay: see `mailbox dead delete`.";

/// `mailbox purge`
#[derive(Debug, Arguments)]
pub(crate) struct Purge {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print {"purged"}.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const REMOVE: &str = "\
Examples:
  mailbox remove dir:./inbox/jobs --yes

Exit codes: 3 if there is no such mailbox.";

/// `mailbox remove`
#[derive(Debug, Arguments)]
pub(crate) struct Remove {
    /// The mailbox, such as dir:./inbox/jobs.
    pub(crate) address: String,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print {"removed"}.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const MOVE: &str = "\
Each message is received, sent, and only then acknowledged: what is interrupted can be repeated.
Sends carry a key made of the message's origin and id, so that a message that was sent but not yet
acknowledged when the move was cut short is recognised by the next move from the same address,
within the replay window of the mailbox (5 minutes by default). Another address of the same
mailbox is another origin. Attributes, group and reply address are kept.

Examples:
  mailbox move dir:./inbox/jobs journal:data/jobs
  mailbox move journal:data/jobs dir:./inbox/jobs --max 100
  mailbox move dir:./inbox/jobs dir:./inbox/again --dead     dead letters, to be received there

It stops when there is nothing to receive: what is delayed, or in flight elsewhere, stays. To
memory: nothing is moved: it would be gone with the command. A mailbox is not moved to itself; if
only the first message shows that it is one by two addresses, that message is the last in line now,
with a new id.";

/// `mailbox move`
#[derive(Debug, Arguments)]
pub(crate) struct Move {
    /// The mailbox to take from.
    pub(crate) from: String,
    /// The mailbox to put into.
    pub(crate) to: String,
    /// At most this many messages.
    #[arg(long, value_name = "N")]
    pub(crate) max: Option<u64>,
    /// Move the dead letters instead.
    #[arg(long)]
    pub(crate) dead: bool,
    /// How long a message stays hidden if the move is cut short, at most 12h.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2m")]
    pub(crate) visibility: Duration,
    /// Print {"moved"}.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const DOCTOR: &str = "\
Examples:
  mailbox doctor dir:./inbox/jobs          read every file of an inbox, and say what is wrong
  mailbox doctor dir:./inbox/jobs --repair damaged messages become dead letters, other files are
                                           set aside
  mailbox doctor data/journal              what is there, and what is damaged
  mailbox doctor data/journal --json       the same, as one JSON document
  mailbox doctor redis://localhost/jobs    whether a server is set up to keep what it is given
  mailbox doctor data/journal --repair     save what can be read; the damaged journal is kept
                                           beside it, as data/journal.damaged-1
  mailbox doctor data/journal --repair --into saved
                                           save it to another directory, and change nothing

An inbox may be in use meanwhile; a journal must not.

Exit codes: 0 sound, or repaired; 5 damaged, or problems remain in an inbox after --repair;
6 somebody has it open; 2 neither a journal nor an inbox, or one of another version; 3 nothing
there.";

pub(super) const INIT: &str = "\
`mailbox send` makes an inbox too, with the settings that are shown here as defaults. What is not
said stays as it is, so that `init` also changes an inbox: while it is in use, and as often as you
like.

Examples:
  mailbox init dir:./inbox/jobs                 three attempts, then a dead letter
  mailbox init dir:./inbox/jobs --shards 64     spread over 64 folders: for 100,000 and more
  mailbox init dir:./inbox/jobs --shards 0      back to one folder
  mailbox init dir:./inbox/jobs --attempts 10 --shell-lease 5m --keep-done 1h

Then, with a shell alone:
  cd inbox/jobs
  T=$(mktemp incoming/.tmp/XXXXXXXXXX)          written where nobody looks
  echo '{\"content\": \"hello\"}' > $T
  F=$(date +%s)-me-${T##*/}.json                a name that no other message has
  mv -n $T incoming/$F                          now a message is there, and all of it
  mv incoming/$F processing/$F && ./job processing/$F && mv processing/$F done/$F";

/// `mailbox init`
#[derive(Debug, Arguments)]
pub(crate) struct Init {
    /// The inbox, such as dir:./inbox/jobs: that folder.
    pub(crate) address: String,
    /// Spread messages over 64 folders, or over none: 0 or 64 (a new inbox: 0).
    #[arg(long, value_name = "N", value_parser = ["0", "64"], hide_possible_values = true)]
    pub(crate) shards: Option<String>,
    /// How long a script that took a message with mv has it (a new inbox: 60s).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) shell_lease: Option<Duration>,
    /// Deliveries until a message becomes a dead letter; 0 for no bound (a new inbox: 3).
    #[arg(long, value_name = "N")]
    pub(crate) attempts: Option<u32>,
    /// How long acknowledged messages stay in done/; 0 for not at all (a new inbox: 1d).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) keep_done: Option<Duration>,
    /// How many of them (a new inbox: 10000).
    #[arg(long, value_name = "N")]
    pub(crate) keep_done_count: Option<u64>,
    /// Whether acks/ gets an empty file for each message that was acknowledged.
    #[arg(long, value_name = "yes|no", value_parser = ["yes", "no"], hide_possible_values = true)]
    pub(crate) acks: Option<String>,
    /// How long a message waits before it becomes a dead letter; 0 for ever (a new inbox: 0).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) retention: Option<Duration>,
    /// How long dead letters are kept; 0 for ever (a new inbox: 0).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) keep_dead: Option<Duration>,
    /// Most messages that are not dead; 0 for no bound (a new inbox: 0).
    #[arg(long, value_name = "N")]
    pub(crate) max_size: Option<u64>,
    /// Print {"inbox", "outcome"}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mailbox doctor`
#[derive(Debug, Arguments)]
pub(crate) struct Doctor {
    /// The directory of a journal or of an inbox, or an address: journal:PATH/NAME, dir:PATH/NAME,
    /// redis://HOST/NAME.
    pub(crate) path: PathBuf,
    /// Save what can be read, if it is damaged. A damaged journal is kept beside it.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Write the repaired journal to this directory instead, and leave the damaged one alone.
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub(crate) into: Option<PathBuf>,
    /// Print one JSON document; errors go to stderr, as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const COMPLETIONS: &str = "\
Examples:
  mailbox completions bash > ~/.local/share/bash-completion/completions/mailbox
  mailbox completions zsh > ~/.zfunc/_mailbox
  mailbox completions fish > ~/.config/fish/completions/mailbox.fish";

/// `mailbox completions`
#[derive(Debug, Arguments)]
pub(crate) struct Completions {
    /// Which shell.
    pub(crate) shell: Shell,
}

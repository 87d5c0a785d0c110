//! The scripts that change and read a mailbox: one call each, so that nobody sees half of a change.
//! Servers keep them by their hash; one that does not know a script is sent its text.

use std::sync::LazyLock;

use bytes::Bytes;
use redis::{Cmd, Script};

use crate::backends::redis::keys::Keys;

/// What a server is asked to do with a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    Send,
    Receive,
    Settle,
    Stats,
    Peek,
    Purge,
    Redrive,
    Sweep,
}

/// A script and the hash that servers know it by.
struct Source {
    text: &'static str,
    hash: Script,
}

macro_rules! script {
    ($name:literal) => {
        LazyLock::new(|| {
            let text = concat!(
                include_str!("scripts/prelude.lua"),
                "fill_seldom = function()\n",
                include_str!("scripts/seldom.lua"),
                "end\n",
                include_str!(concat!("scripts/", $name, ".lua"))
            );
            Source { text, hash: Script::new(text) }
        })
    };
}

static SEND: LazyLock<Source> = script!("send");
static RECEIVE: LazyLock<Source> = script!("receive");
static SETTLE: LazyLock<Source> = script!("settle");
static STATS: LazyLock<Source> = script!("stats");
static PEEK: LazyLock<Source> = script!("peek");
static PURGE: LazyLock<Source> = script!("purge");
static REDRIVE: LazyLock<Source> = script!("redrive");
static SWEEP: LazyLock<Source> = script!("sweep");

impl Job {
    fn source(self) -> &'static Source {
        match self {
            Self::Send => &SEND,
            Self::Receive => &RECEIVE,
            Self::Settle => &SETTLE,
            Self::Stats => &STATS,
            Self::Peek => &PEEK,
            Self::Purge => &PURGE,
            Self::Redrive => &REDRIVE,
            Self::Sweep => &SWEEP,
        }
    }
}

/// What a server is told: a script by its hash or, if it does not know it, by its text; or a plain
/// command.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) command: Cmd,
    script: Option<(Job, Keys, Vec<Argument>)>,
}

/// An argument of a script. Payloads are not copied until they are written to the wire.
#[derive(Debug, Clone)]
pub(crate) enum Argument {
    Text(String),
    Bytes(Bytes),
}

impl From<String> for Argument {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Bytes> for Argument {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl Order {
    pub(crate) fn script(job: Job, keys: &Keys, arguments: Vec<Argument>) -> Self {
        let command = command("EVALSHA", job.source().hash.get_hash(), keys, &arguments);
        Self { command, script: Some((job, keys.clone(), arguments)) }
    }

    pub(crate) const fn plain(command: Cmd) -> Self {
        Self { command, script: None }
    }

    /// The same with the script's text.
    pub(crate) fn by_text(&self) -> Option<Cmd> {
        let (job, keys, arguments) = self.script.as_ref()?;
        Some(command("EVAL", job.source().text, keys, arguments))
    }
}

fn command(verb: &str, script: &str, keys: &Keys, arguments: &[Argument]) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(script).arg(keys.all().len());
    for key in keys.all() {
        command.arg(key);
    }
    for argument in arguments {
        match argument {
            Argument::Text(text) => command.arg(text),
            Argument::Bytes(bytes) => command.arg(&bytes[..]),
        };
    }
    command
}

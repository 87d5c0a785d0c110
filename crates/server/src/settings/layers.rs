//! Where settings come from, and which of them wins.

use std::fmt;
use std::path::PathBuf;

use mailbox::{Error, ErrorKind, Result};

use super::Set;
use super::file::{File, nearest};
use super::table::{ALL, Key, Setting};

/// How variables of the environment begin that are settings.
const PREFIX: &str = "MAILBOX_";
/// Variables that begin so and are no settings: for clients, and for commands of workers.
const OTHERS: [&str; 10] = [
    "URL",
    "CAP",
    "CONFIG",
    "ID",
    "ADDRESS",
    "RECEIPT_HANDLE",
    "DELIVERY_COUNT",
    "ENQUEUED_AT",
    "REPLY_TO",
    "ATTRIBUTES",
];

/// Everything that was said, by whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layers {
    /// On the command line; of what was said twice, the last.
    pub flags: Vec<(Key, String)>,
    /// In the environment: `MAILBOX_*`, `HOME` and `XDG_DATA_HOME` are looked at.
    pub environment: Vec<(String, String)>,
    /// In a file.
    pub file: Option<File>,
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Nobody said.
    Default,
    /// This line of this file.
    File(String, usize),
    /// This variable.
    Environment(String),
    /// This flag.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{path} line {line}"),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

impl Layers {
    /// One value for every setting, in the order of the table.
    pub(super) fn resolve(&self) -> Result<Vec<Set>> {
        self.check_environment()?;
        let written = self.file.as_ref().map(File::read).transpose()?.unwrap_or_default();
        let path = self.file.as_ref().map_or("", |file| &file.path);
        let mut all = Vec::with_capacity(ALL.len());
        for setting in &ALL {
            let mut set = read(setting, setting.default, Source::Default)?;
            if let Some(written) = written.iter().find(|it| it.name == setting.name) {
                let source = Source::File(path.to_owned(), written.line);
                // Read even if something else wins: what is wrong is said at once.
                set = read(setting, &written.text, source)?;
            }
            let variable = setting.variable();
            if let Some(text) = self.variable(&variable) {
                set = read(setting, text, Source::Environment(variable))?;
            }
            let flag = self.flags.iter().rev().find(|(key, _)| *key == setting.key);
            if let Some((_, text)) = flag {
                set = read(setting, text, Source::Flag(setting.flag()))?;
            }
            all.push(set);
        }
        Ok(all)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().rev().find(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Refuses what looks like a misspelt setting. Other variables may be anybody's.
    fn check_environment(&self) -> Result<()> {
        for (variable, _) in &self.environment {
            let Some(name) = variable.strip_prefix(PREFIX) else { continue };
            let small = name.to_ascii_lowercase();
            if OTHERS.contains(&name) || ALL.iter().any(|setting| setting.name == small) {
                continue;
            }
            if let Some(near) = nearest(&small) {
                let meant = near.to_ascii_uppercase();
                let message =
                    format!("{variable}: there is no such setting; {PREFIX}{meant} is meant?");
                return Err(Error::new(ErrorKind::InvalidParameter, message));
            }
        }
        Ok(())
    }

    /// The data directory if nobody says.
    pub(super) fn data_directory(&self) -> Result<PathBuf> {
        data_directory(|name| self.variable(name).map(str::to_owned)).ok_or_else(|| {
            let message = "there is no home directory: say where the data is, with --data";
            Error::new(ErrorKind::InvalidParameter, message).with_field("data")
        })
    }
}

/// The data directory if nobody says: `mailbox` in the user's own. Nothing if there is no user.
pub fn data_directory(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |path: String| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let shared = variable("XDG_DATA_HOME").and_then(absolute);
    let home = || variable("HOME").and_then(absolute).map(|home| home.join(".local/share"));
    shared.or_else(home).map(|path| path.join("mailbox"))
}

fn read(setting: &Setting, text: &str, source: Source) -> Result<Set> {
    match setting.kind.read(text) {
        Ok(value) => Ok(Set { value, source }),
        Err(why) => {
            let name = match &source {
                Source::File(..) => format!("{source}: {}", setting.name),
                _ => source.to_string(),
            };
            // A store may have a password in it.
            let shown = if setting.key == Key::Store { "…" } else { text };
            let shown: String = shown.chars().take(80).collect();
            let message = format!("{name}: {shown:?} is not possible: {why}");
            Err(Error::new(ErrorKind::InvalidParameter, message))
        }
    }
}

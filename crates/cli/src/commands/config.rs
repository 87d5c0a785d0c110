//! `mailbox config`: the settings of a service, and where each comes from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mailbox::{Error, ErrorKind, Result};
use mailbox_server::settings::{self, Certificates, Key, Layers, Settings, Shown, Source};
use serde_json::{Map, Value, json};

use crate::args::{Config, ConfigCommand, Said, Show};
use crate::exit::Outcome;
use crate::{local, output, place};

/// Largest settings file.
const MOST: u64 = 1024 * 1024;

pub(super) fn run(args: &Config) -> Result<Outcome> {
    match &args.command {
        ConfigCommand::Check(said) => check(said),
        ConfigCommand::Show(args) => show(args),
    }
}

/// Everything that was said about settings: it is read anew with every call.
pub(super) fn layers(said: &Said) -> Result<Layers> {
    let mut flags = said.flags.0.clone();
    if let Some(data) = local::said_data() {
        flags.push((Key::Data, text(data.into_os_string(), "--data")?));
    }
    let mut environment = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let is_ours = name.starts_with("MAILBOX_") || ["HOME", "XDG_DATA_HOME"].contains(&name);
        // As if it was not there: the way to take a variable back in many places.
        if is_ours && !value.is_empty() {
            environment.push((name.to_owned(), text(value, name)?));
        }
    }
    let named = environment.iter().find(|(name, _)| name == "MAILBOX_CONFIG");
    let named = said.config.clone().or_else(|| named.map(|(_, path)| PathBuf::from(path)));
    let file = named.map(|path| read(&path)).transpose()?;
    Ok(Layers { flags, environment, file })
}

fn text(value: std::ffi::OsString, name: &str) -> Result<String> {
    value.into_string().map_err(|_| {
        Error::new(ErrorKind::InvalidParameter, format!("{name}: that is no text in UTF-8"))
    })
}

fn read(path: &Path) -> Result<settings::File> {
    let shown = path.display().to_string();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
    let read = read.map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::Forbidden,
            _ => ErrorKind::InvalidParameter,
        };
        Error::new(kind, format!("cannot read {shown}")).with_source(error)
    })?;
    if read as u64 > MOST {
        let message = format!("{shown}: a settings file has at most {MOST} bytes");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(settings::File { path: shown, text })
}

fn check(said: &Said) -> Result<Outcome> {
    let settings = Settings::of(&layers(said)?)?;
    place::read_place(&settings.store())?;
    if let Some((cert, key)) = settings.tls() {
        Certificates::read(cert, key)?;
    }
    let set = settings.shown().iter().filter(|it| it.source != Source::Default).count();
    output::say(&format!("good: {set} of {} settings are set", settings::ALL.len()));
    Ok(Outcome::Done)
}

fn show(args: &Show) -> Result<Outcome> {
    let settings = Settings::of(&layers(&args.said)?)?;
    let shown = settings.shown();
    if args.json {
        let entry = |it: &Shown| {
            let live = it.setting.is_live;
            let value = json!({ "value": it.value, "source": it.source.to_string(), "live": live });
            (it.setting.name.to_owned(), value)
        };
        let document: Map<String, Value> = shown.iter().map(entry).collect();
        output::print_json(&document)?;
    } else {
        let mut rows = vec![["setting", "value", "from"].map(str::to_owned).to_vec()];
        rows.extend(shown.iter().map(|it| {
            let value = if it.value.is_empty() { "-" } else { &it.value };
            vec![it.setting.name.to_owned(), value.to_owned(), it.source.to_string()]
        }));
        output::print(&output::table(&rows))?;
    }
    Ok(Outcome::Done)
}

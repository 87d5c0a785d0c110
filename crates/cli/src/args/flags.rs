//! One flag for every setting of the service, made from the table of settings.

use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use mailbox_server::settings::{ALL, Key, Setting};

/// Under which heading the many are that hardly anybody needs.
const BOUNDS: &str = "Bounds and times";

/// The names of the flags, in the order of the table; clap keeps only what lives for ever.
static NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| ALL.iter().map(|setting| setting.name.replace('_', "-")).collect());

/// What was said about settings, as it was said: the settings themselves check it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(pub(crate) Vec<(Key, String)>);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        settings().fold(command, |command, setting| command.arg(argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = settings().filter_map(|setting| {
            let values = matches.get_many::<String>(setting.name)?;
            let values: Vec<&str> = values.map(String::as_str).collect();
            Some((setting.key, values.join(",")))
        });
        Ok(Self(said.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// All but the data directory, which every command can be told.
fn settings() -> impl Iterator<Item = &'static Setting> {
    ALL.iter().filter(|setting| setting.key != Key::Data)
}

fn argument(setting: &'static Setting) -> Arg {
    let (value, about) = (value_name(setting), about(setting));
    let long = NAMES[setting.key as usize].as_str();
    let arg = Arg::new(setting.name).long(long).help(about).value_name(value);
    let arg = if setting.is_bound() { arg.help_heading(BOUNDS) } else { arg };
    let arg = if setting.key == Key::Listen { arg.action(clap::ArgAction::Append) } else { arg };
    if setting.is_switch() {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg
    }
}

fn about(setting: &Setting) -> String {
    match setting.default() {
        "" | "false" => setting.about.to_owned(),
        default => format!("{} [default: {default}]", setting.about),
    }
}

fn value_name(setting: &Setting) -> &'static str {
    match setting.key {
        Key::Store => "ADDRESS",
        Key::Listen | Key::Oap => "ADDR",
        Key::OtlpEndpoint => "URL",
        Key::Unix => "PATH",
        Key::TlsCert | Key::TlsKey => "FILE",
        Key::Profile => "PROFILE",
        Key::Log => "LEVEL",
        Key::LogFormat => "FORMAT",
        _ if setting.is_switch() => "true|false",
        _ if setting.is_size() => "SIZE",
        _ if setting.is_time() => "TIME",
        _ => "N",
    }
}

//! Which of several that say something wins, and what is refused.

use std::time::Duration;

use super::*;

fn layers(flags: &[(Key, &str)], environment: &[(&str, &str)], file: &str) -> Layers {
    let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
    let mut variables = vec![("HOME".to_owned(), "/me".to_owned())];
    variables
        .extend(environment.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    let file = File { path: "mailbox.toml".to_owned(), text: file.to_owned() };
    Layers { flags, environment: variables, file: Some(file) }
}

fn refused(layers: &Layers) -> String {
    Settings::of(layers).unwrap_err().to_string()
}

#[test]
fn by_default_the_settings_are_those_of_the_service() {
    let settings = Settings::of(&layers(&[], &[], "")).unwrap();
    assert_eq!(settings.config(), Config::default());
    assert_eq!(settings.listen().collect::<Vec<_>>(), ["127.0.0.1:7600"]);
    assert_eq!(settings.store(), "journal:/me/.local/share/mailbox/journal");
    assert_eq!(settings.data(), Some(Path::new("/me/.local/share/mailbox")));
    let policy = settings.policy();
    assert_eq!((policy.max_attempts, policy.max_size), (Some(5), Some(65_536)));
    assert_eq!(policy.replay_window, Duration::from_secs(300));
    let day = Duration::from_secs(86_400);
    let retention = policy.retention;
    assert_eq!((retention.ready_age, retention.dead_age), (Some(7 * day), Some(14 * day)));
    assert_eq!(retention.in_flight_factor, Some(10));
    assert!(settings.shown().iter().all(|shown| shown.source == Source::Default));
}

#[test]
fn a_flag_is_before_the_environment_is_before_the_file() {
    let file = "\nshards = 2\nmax_attempts = 3\nlog = \"warn\"\n";
    let environment = [("MAILBOX_SHARDS", "4"), ("MAILBOX_LOG", "debug")];
    let settings = Settings::of(&layers(&[(Key::Log, "error")], &environment, file)).unwrap();
    assert_eq!(settings.policy().max_attempts, Some(3));
    assert_eq!(settings.config().shards, 4);
    assert_eq!(settings.log(), "error");
    let source = |key: Key| settings.shown()[key as usize].source.to_string();
    assert_eq!(source(Key::MaxAttempts), "mailbox.toml line 3");
    assert_eq!(source(Key::Shards), "MAILBOX_SHARDS");
    assert_eq!(source(Key::Log), "--log");
    assert_eq!(source(Key::MaxBody), "default");
}

#[test]
fn what_is_out_of_bounds_is_refused_with_the_bound_and_where_it_was_said() {
    let file = refused(&layers(&[], &[], "\n\ncap_cache_ttl = \"4s\"\n"));
    assert!(file.contains("mailbox.toml line 3: cap_cache_ttl: \"4s\""), "{file}");
    assert!(file.contains("5s..=2m"), "{file}");
    let variable = refused(&layers(&[], &[("MAILBOX_SHARDS", "1025")], ""));
    assert!(variable.contains("MAILBOX_SHARDS") && variable.contains("1..=1024"), "{variable}");
    let flag = refused(&layers(&[(Key::MaxBody, "1GB")], &[], ""));
    assert!(flag.contains("--max-body") && flag.contains("8MiB"), "{flag}");
    // Even where another one wins: it would be wrong as soon as that one is gone.
    let hidden = refused(&layers(&[(Key::Shards, "8")], &[("MAILBOX_SHARDS", "0")], ""));
    assert!(hidden.contains("MAILBOX_SHARDS"), "{hidden}");
}

#[test]
fn a_misspelt_variable_is_refused_and_a_strangers_is_not() {
    let message = refused(&layers(&[], &[("MAILBOX_SHRADS", "8")], ""));
    assert!(message.contains("MAILBOX_SHRADS") && message.contains("MAILBOX_SHARDS"), "{message}");
    for name in ["MAILBOX_URL", "MAILBOX_CAP", "MAILBOX_ID", "MAILBOX_MY_OWN", "PATH"] {
        assert!(Settings::of(&layers(&[], &[(name, "x")], "")).is_ok(), "{name}");
    }
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    for (file, wanted) in [
        ("visibility_min = \"1m\"", "line 1: visibility_min: visibility_min 1m is more than"),
        ("visibility_default = \"1ms\"", "line 1: visibility_default: visibility_min 250ms"),
        ("backoff_max = \"100ms\"", "line 1: backoff_max"),
        ("retention_age = 0", "allow_unbounded_retention"),
        ("retention_dead = 0", "allow_unbounded_retention"),
        ("tls_cert = \"a.pem\"", "tls_key has to be set as well"),
        ("tls_key = \"a.pem\"", "tls_cert has to be set as well"),
        ("listen = \"0.0.0.0:7600\"", "--insecure-plaintext"),
        ("listen = [\"127.0.0.1:1\", \"[::]:1\"]", "--insecure-plaintext"),
        ("data = \"/a?b\"", "cannot be written"),
        ("profile = \"micronode\"\nstore = \"journal:/a\"", "line 2: store"),
        ("profile = \"micronode\"\nstore = \"redis://h\"", "line 2: store"),
    ] {
        let message = refused(&layers(&[], &[], file));
        assert!(message.contains(wanted), "{file}: {message}");
    }
    for file in [
        "retention_age = 0\nallow_unbounded_retention = true",
        "listen = \"0.0.0.0:7600\"\ninsecure_plaintext = true",
        "listen = \"0.0.0.0:7600\"\ntls_cert = \"a\"\ntls_key = \"b\"",
        "listen = \"[::ffff:127.0.0.1]:1\"",
        "profile = \"micronode\"\nstore = \"memory:\"",
    ] {
        assert!(Settings::of(&layers(&[], &[], file)).is_ok(), "{file}");
    }
}

#[test]
fn a_micronode_has_no_data_directory_even_if_one_is_named() {
    let named = layers(&[(Key::Profile, "micronode"), (Key::Data, "/a")], &[], "");
    let settings = Settings::of(&named).unwrap();
    assert_eq!((settings.data(), settings.store().as_str()), (None, "memory:"));
}

#[test]
fn the_users_data_directory_is_found() {
    let found = |variables: &[(&str, &str)]| {
        let all: Vec<(String, String)> =
            variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let get = |name: &str| all.iter().find(|(it, _)| it == name).map(|(_, text)| text.clone());
        data_directory(get).map(|path| path.display().to_string())
    };
    let home = found(&[("HOME", "/h")]);
    assert_eq!(home.as_deref(), Some("/h/.local/share/mailbox"));
    let both = found(&[("HOME", "/h"), ("XDG_DATA_HOME", "/x")]);
    assert_eq!(both.as_deref(), Some("/x/mailbox"));
    let relative = found(&[("HOME", "/h"), ("XDG_DATA_HOME", "x")]);
    assert_eq!(relative, home);
    assert_eq!(found(&[]), None);
}

#[test]
fn a_password_of_the_store_is_not_shown() {
    let set = layers(&[(Key::Store, "redis://u:hunter2@h:1")], &[], "");
    let settings = Settings::of(&set).unwrap();
    assert_eq!(settings.shown()[Key::Store as usize].value, "redis://h:1");
    assert!(!refused(&layers(&[(Key::Store, "redis://hunter2\n")], &[], "")).contains("hunter2"));
}

#[test]
fn a_reload_takes_what_can_change_and_says_what_cannot() {
    let old = Settings::of(&layers(&[], &[], "shards = 4\nlog = \"info\"")).unwrap();
    let text = "shards = 5\nlog = \"debug\"\nvisibility_default = \"1m\"\ntls_cert = \"a\"\n\
                tls_key = \"b\"";
    let new = Settings::of(&layers(&[], &[], text)).unwrap();
    let (merged, held) = old.reloaded(&new);
    let held: Vec<&str> = held.iter().map(|setting| setting.name).collect();
    assert_eq!(held, ["shards", "tls_cert", "tls_key"]);
    assert_eq!(merged.config().shards, 4);
    assert_eq!(merged.config().visibility_default, Duration::from_secs(60));
    assert_eq!((merged.log(), merged.tls()), ("debug", None));
    assert_eq!(old.reloaded(&old), (old.clone(), Vec::new()));
}

//! Settings of the service, as they are said and shown.

use std::fs;

use super::server::Home;
use super::story::{Story, assert_story};

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let mut story = Story::new();
    let text =
        "# ours\nshards = 16\nvisibility_default = \"45s\"\nstore = \"redis://u:hunter2@h\"\n";
    fs::write(story.dir().join("mailbox.toml"), text).unwrap();
    let show = ["config", "show", "--config", "mailbox.toml", "--data", "data", "--shards", "4"];
    let ran = story.run(&show);
    assert!(!ran.stdout.contains("hunter2"), "{ran:?}");
    story.run(&["config", "check", "--config", "mailbox.toml", "--data", "data"]);
    let json = story.run(&[&show[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(document["shards"]["source"], "--shards");
    assert_eq!(document["visibility_default"]["source"], "mailbox.toml line 3");
    assert_story!("config_show", story);
}

#[test]
fn what_is_wrong_with_settings_is_said_with_key_and_line() {
    let mut story = Story::new();
    for (name, text) in [
        ("unknown.toml", "shards = 8\n\nshard_capactiy = 9\n"),
        ("bounds.toml", "\ncap_cache_ttl = \"3s\"\n"),
        ("broken.toml", "shards = 8\nlog = \n"),
        ("profile.toml", "profile = \"micronode\"\nstore = \"journal:data\"\n"),
    ] {
        fs::write(story.dir().join(name), text).unwrap();
        for command in [&["config", "check"][..], &["serve"]] {
            let arguments = [command, &["--config", name, "--data", "data"]].concat();
            assert_eq!(story.run(&arguments).code, Some(2), "{name}");
        }
    }
    for arguments in [
        &["serve", "--config", "nowhere.toml"][..],
        &["serve", "--data", "data", "--listen", "0.0.0.0:0"],
        &["serve", "--data", "data", "--listen", "127.0.0.1"],
        &["serve", "--data", "data", "--shards", "1025"],
        &["serve", "--data", "data", "--profile", "nanonode"],
        &["serve", "--data", "data", "--tls-cert", "cert.pem"],
        &["serve", "--data", "data", "--tls-cert", "no.pem", "--tls-key", "no.pem"],
        &["serve", "--data", "data", "--store", "inbox"],
        &["serve", "--shrads", "8"],
    ] {
        assert_ne!(story.run(arguments).code, Some(0), "{arguments:?}");
    }
    assert!(!story.dir().join("data").exists(), "nothing is made");
    assert_story!("config_errors", story);
}

#[test]
fn a_variable_that_is_misspelt_is_refused() {
    let home = Home::new();
    let mut check = home.command(&["config", "check"]);
    let ran = check.env("MAILBOX_SHRADS", "8").output().unwrap();
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("MAILBOX_SHARDS"), "{ran:?}");
    let mut show = home.command(&["config", "show"]);
    let ran = show.env("MAILBOX_SHARDS", "9").env("MAILBOX_LOG", "").output().unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(shown.lines().any(|line| line.contains("shards") && line.contains("MAILBOX_SHARDS")));
    assert!(shown.contains(home.data().to_str().unwrap()), "{shown}");
}

#[test]
fn plaintext_is_listened_for_elsewhere_only_if_somebody_insists() {
    let home = Home::new();
    let refused = home.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--insecure-plaintext"), "{refused:?}");
    assert!(!home.data().exists(), "nothing was made");
    let insisted = ["serve", "--listen", "0.0.0.0:0", "--insecure-plaintext"];
    let service = home.serve_by(&mut home.command(&insisted));
    assert!(service.url.starts_with("http://127.0.0.1:"), "{}", service.url);
    home.done(&["send", "jobs", "x"]);
}

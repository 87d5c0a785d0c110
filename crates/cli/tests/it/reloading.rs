//! SIGHUP: the settings file is read again while the service runs.

use std::fs;

use rustix::process::Signal;

use super::server::Home;

#[test]
fn settings_that_can_change_do_and_others_are_named() {
    let home = Home::new();
    let file = home.path().join("mailbox.toml");
    fs::write(&file, "cap_max_ttl = \"30d\"\n").unwrap();
    let service = home.serve(&["--config", "mailbox.toml"]);
    let mint = |ttl: &str| home.run(&["cap", "mint", "--op", "send", "--ttl", ttl]).code;
    assert_eq!((mint("2d"), mint("31d")), (Some(0), Some(2)));
    fs::write(&file, "cap_max_ttl = \"1d\"\nshards = 16\n").unwrap();
    service.tell(Signal::HUP);
    service.wait_for("these need a restart settings=shards");
    assert_eq!(mint("2d"), Some(2));
    // What is wrong changes nothing.
    fs::write(&file, "cap_max_ttl = \"30d\"\n\nshards = 0\n").unwrap();
    service.tell(Signal::HUP);
    service.wait_for("settings stay as they were");
    service.wait_for("mailbox.toml line 3: shards");
    assert_eq!(mint("2d"), Some(2));
    fs::write(&file, "cap_max_ttl = \"30d\"\n").unwrap();
    service.tell(Signal::HUP);
    service.wait_for("settings read again\n");
    assert_eq!(mint("2d"), Some(0));
    assert!(service.end().success());
}

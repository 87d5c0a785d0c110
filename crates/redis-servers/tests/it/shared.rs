use std::process::Command;
use std::thread;

use mailbox_redis_servers::shared;

#[test]
fn all_threads_get_the_same_servers() {
    let ports = || {
        let cluster = shared::cluster();
        let sentinels = shared::sentinels();
        (shared::standalone().port(), cluster.seeds(), sentinels.seeds())
    };
    let others: Vec<_> = (0..3).map(|_| thread::spawn(ports)).collect();
    let mine = ports();
    for other in others {
        assert_eq!(other.join().expect("no panic"), mine);
    }
}

#[test]
fn the_shared_server_answers() {
    let mut connection = shared::standalone().connect().expect("a connection");
    let answer: String = redis::cmd("PING").query(&mut connection).expect("PING");
    assert_eq!(answer, "PONG");
}

#[test]
fn a_machine_without_redis_fails_the_test_and_is_told_which_packages_it_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/bin/sh", folder.path().join("sh")).expect("a link");
    let run = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "shared::the_shared_server_answers"])
        .env("PATH", folder.path())
        .output()
        .expect("a run");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(!run.status.success(), "{text}");
    assert!(text.contains("Debian packages redis-server and redis-tools"), "{text}");
}

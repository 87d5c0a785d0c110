//! A server ends with the process that started it, also when that is killed.

use std::process::{Command, Stdio};
use std::time::Duration;

use mailbox_redis_servers::{Node, shared};

use crate::watch::{runs, wait_until};

/// Where the process that will be killed writes what it has started.
const NOTE: &str = "MAILBOX_REDIS_SERVERS_NOTE";
const THIS_TEST: &str = "servers_end_with_the_process_that_started_them_even_if_it_is_killed";

/// What the process does that will be killed.
fn start_servers_and_wait(note: &str) {
    let paused = Node::start(&[("appendonly", "yes")]).expect("a server");
    paused.pause();
    let shared = shared::standalone();
    let mut connection = shared.connect().expect("a connection");
    let (_, folder): (String, String) =
        redis::cmd("CONFIG").arg("GET").arg("dir").query(&mut connection).expect("CONFIG GET");
    let text = format!("{} {} {folder}", paused.pid(), shared.pid());
    std::fs::write(format!("{note}.new"), text).expect("a note");
    std::fs::rename(format!("{note}.new"), note).expect("a note");
    // Killed before that, unless the test itself was.
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn servers_end_with_the_process_that_started_them_even_if_it_is_killed() {
    if let Ok(note) = std::env::var(NOTE) {
        return start_servers_and_wait(&note);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let note = folder.path().join("note");
    let mut process = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("process_end::{THIS_TEST}")])
        .env(NOTE, &note)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    wait_until("the process has started its servers", || note.exists());
    let text = std::fs::read_to_string(&note).expect("the note");
    let words: Vec<&str> = text.split(' ').collect();
    let [paused, shared, server_folder] = words.as_slice() else { panic!("the note is {text:?}") };
    let pids = [paused, shared].map(|pid| pid.parse::<u32>().expect("a process id"));
    assert!(pids.into_iter().all(runs), "{text}");

    process.kill().expect("SIGKILL");
    process.wait().expect("its end");
    wait_until("the servers have ended", || !pids.into_iter().any(runs));
    wait_until("their folder is gone", || !std::fs::exists(server_folder).expect("a look"));
}

//! The commands on a Redis server.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use mailbox_redis_servers::Node;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{binary, done_in, json_in, mailbox_in, tell, wait_until};

fn server(options: &[(&str, &str)]) -> (Node, TempDir) {
    (Node::start(options).unwrap(), tempfile::tempdir().unwrap())
}

#[test]
fn the_everyday_commands_work_on_redis() {
    let (server, dir) = server(&[]);
    let dir = dir.path();
    let jobs = format!("redis://{}/jobs", server.address());
    let jobs = jobs.as_str();
    assert_eq!(mailbox_in(dir, &["receive", jobs]).code, Some(3), "nothing there");
    done_in(dir, &["send", jobs, "one", "--attr", "colour=red"]);
    done_in(dir, &["send", jobs, "two", "--delay", "1h"]);
    let received = &json_in(dir, &["receive", jobs, "--json"])[0];
    assert_eq!(received["attributes"]["colour"], "red");
    let handle = received["receipt_handle"].as_str().unwrap();
    done_in(dir, &["nack", jobs, handle, "--error", "not now"]);
    assert_eq!(mailbox_in(dir, &["ack", jobs, handle]).code, Some(3), "a stale handle");
    let again = &json_in(dir, &["receive", jobs, "--json"])[0];
    assert_eq!(again["delivery_count"], 2);
    done_in(dir, &["reject", jobs, again["receipt_handle"].as_str().unwrap()]);
    let stats: Value = serde_json::from_str(&done_in(dir, &["stats", jobs, "--json"])).unwrap();
    assert_eq!((&stats["delayed"], &stats["dead"]), (&1.into(), &1.into()), "{stats}");
    assert_eq!((&stats["backend"], &stats["durability"]), (&"redis".into(), &"async".into()));
    assert!(stats["expires_in_ms"].as_u64().is_some_and(|left| left > 200_000_000), "{stats}");
    done_in(dir, &["dead", "redrive", jobs, "--all"]);
    assert_eq!(done_in(dir, &["receive", jobs, "--ack"]), "one\n");
    let place = format!("redis://{}", server.address());
    assert!(done_in(dir, &["list", &place]).contains("jobs"));
    done_in(dir, &["purge", jobs, "--yes"]);
    assert_eq!(done_in(dir, &["count", jobs]).trim(), "0");
    let removed = mailbox_in(dir, &["remove", jobs, "--yes"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let mut plain = server.connect().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut plain).unwrap();
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn messages_move_from_a_folder_to_redis_and_a_worker_answers() {
    let (server, dir) = server(&[]);
    let dir = dir.path();
    let jobs = format!("redis://{}/jobs?ttl=0", server.address());
    let jobs = jobs.as_str();
    done_in(dir, &["send", "dir:inbox/jobs", "from a folder"]);
    done_in(dir, &["move", "dir:inbox/jobs", jobs]);
    assert_eq!(done_in(dir, &["receive", jobs, "--ack"]), "from a folder\n");
    let mut worker =
        binary().current_dir(dir).args(["work", jobs, "--", "tr", "a-z", "A-Z"]).spawn().unwrap();
    assert_eq!(done_in(dir, &["call", jobs, "hello", "--timeout", "20s"]).trim(), "HELLO");
    tell(&worker, Signal::TERM);
    assert!(worker.wait().unwrap().success());
}

#[test]
fn following_goes_on_when_the_server_is_back() {
    let (mut server, dir) = server(&[("appendonly", "yes")]);
    let jobs = format!("redis://{}/jobs?patience=1", server.address());
    done_in(dir.path(), &["send", &jobs, "before"]);
    let mut follower = binary()
        .args(["receive", &jobs, "--follow", "--ack", "--count", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "before");
    wait_until("it is acknowledged", || done_in(dir.path(), &["count", &jobs]).trim() == "0");
    server.kill();
    server.restart().unwrap();
    done_in(dir.path(), &["send", &jobs, "after"]);
    assert_eq!(lines.next().unwrap().unwrap(), "after");
    assert!(follower.wait().unwrap().success());
}

#[test]
fn the_doctor_says_what_is_not_safe_on_a_server() {
    let (server, dir) = server(&[("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")]);
    let jobs = format!("redis://{}/jobs", server.address());
    let said = done_in(dir.path(), &["doctor", &jobs]);
    for word in ["appendonly is off", "allkeys-lru", "ttl=0"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let refused = mailbox_in(dir.path(), &["doctor", &jobs, "--repair"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let safe = format!("{jobs}?durability=fsync");
    let refused = mailbox_in(dir.path(), &["send", &safe, "x"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("appendonly is off"), "{refused:?}");
}

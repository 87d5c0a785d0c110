//! `mailbox work` and `mailbox receive --exec`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::{Backend, Name, Policy};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::{SCHEMES, binary, done_in, json_in, mailbox_in, tell, wait_until};

const JOBS: &str = "dir:inbox/jobs";

fn fill(dir: &Path, count: usize) {
    let lines: String = (1..=count).map(|number| format!("{number}\n")).collect();
    fs::write(dir.join("list"), lines).unwrap();
    let list = fs::File::open(dir.join("list")).unwrap();
    let send = binary().current_dir(dir).args(["send", JOBS, "--lines"]).stdin(list).output();
    assert!(send.unwrap().status.success());
}

fn work(dir: &Path, arguments: &[&str]) -> Child {
    binary()
        .current_dir(dir)
        .args(["work", JOBS])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The lines of a file that commands write to.
fn lines(dir: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn stats(dir: &Path) -> Value {
    serde_json::from_str(&done_in(dir, &["stats", JOBS, "--json"])).unwrap()
}

#[test]
fn a_command_gets_the_payload_and_the_facts() {
    for scheme in SCHEMES {
        let dir = tempdir().unwrap();
        let jobs = format!("{scheme}:inbox/jobs");
        let id = done_in(dir.path(), &["send", &jobs, "a\tb", "--attr", "k=\"v\""]);
        // It leads a process group of its own: Ctrl-C, which goes to a group, does not reach it.
        let script = "cat; echo; env | grep ^MAILBOX_ | sort
                      [ $(cut -d ' ' -f 5 /proc/$$/stat) = $$ ] && echo leads its group";
        let one = ["work", &jobs, "--max-messages", "1", "--", "sh", "-c", script];
        let printed = binary()
            .current_dir(dir.path())
            .args(one)
            .env("MAILBOX_REPLY_TO", "somebody else's")
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&printed.stderr), "1 done, 0 failed\n");
        let stdout = String::from_utf8(printed.stdout).unwrap();
        assert!(stdout.starts_with("a\tb\n"), "{stdout}");
        assert!(stdout.ends_with("leads its group\n"), "{stdout}");
        let has = |line: &str| stdout.lines().any(|it| it == line);
        assert!(has(&format!("MAILBOX_ID={}", id.trim())), "{stdout}");
        assert!(has("MAILBOX_DELIVERY_COUNT=1"), "{stdout}");
        assert!(has("MAILBOX_ATTRIBUTES={\"k\":\"\\\"v\\\"\"}"), "{stdout}");
        assert!(stdout.contains(&format!("MAILBOX_ADDRESS={scheme}:///")), "{stdout}");
        assert!(stdout.contains("/inbox/jobs\n"), "{stdout}");
        assert!(stdout.contains("MAILBOX_RECEIPT_HANDLE="), "{stdout}");
        assert!(stdout.contains("MAILBOX_ENQUEUED_AT=2"), "{stdout}");
        assert!(!stdout.contains("MAILBOX_REPLY_TO"), "{stdout}");
        assert_eq!(done_in(dir.path(), &["count", &jobs]), "0\n");
    }
}

#[test]
fn no_more_commands_run_at_a_time_than_asked_for() {
    let dir = tempdir().unwrap();
    fill(dir.path(), 12);
    // Each command adds itself, says how many there are, and takes itself away.
    let script = "touch run-$MAILBOX_ID; ls run-* | wc -l >> counts; sleep 0.2; rm run-$MAILBOX_ID";
    let mut worker =
        work(dir.path(), &["-j", "3", "--max-messages", "12", "--", "sh", "-c", script]);
    assert!(worker.wait().unwrap().success());
    let counts: Vec<usize> =
        lines(dir.path(), "counts").iter().map(|it| it.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 12, "{counts:?}");
    assert_eq!(counts.iter().max(), Some(&3), "{counts:?}");
    assert_eq!(done_in(dir.path(), &["count", JOBS]), "0\n");
}

/// An inbox whose messages are delivered at most this often.
async fn inbox_with_attempts(most: u32) -> TempDir {
    let dir = tempdir().unwrap();
    let policy = Policy { max_attempts: Some(most), ..Policy::default() };
    let config = DirectoryConfig::default();
    let backend = DirectoryBackend::open_with(dir.path().join("inbox"), config).await.unwrap();
    backend.configure(&Name::parse("jobs").unwrap(), policy).await.unwrap();
    backend.close().await.unwrap();
    dir
}

#[tokio::test]
async fn a_failure_is_delivered_again_later_and_dies_in_the_end() {
    let dir = inbox_with_attempts(2).await;
    let id = done_in(dir.path(), &["send", JOBS, "x"]);
    let script = "echo run >> runs; echo first >&2; echo ' the last line ' >&2; exit 7";
    let mut worker = work(dir.path(), &["--json", "--backoff", "300ms", "--", "sh", "-c", script]);
    // The second attempt is the last: the next receive makes a dead letter of it.
    wait_until("it is dead", || stats(dir.path())["dead"] == 1);
    tell(&worker, Signal::TERM);
    assert!(worker.wait().unwrap().success());
    let output = worker.wait_with_output().unwrap();
    assert_eq!(lines(dir.path(), "runs").len(), 2);
    let told: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told.len(), 2);
    for (count, told) in (1..).zip(&told) {
        assert_eq!((&told["id"], &told["delivery_count"]), (&id.trim().into(), &count.into()));
        assert_eq!(told["outcome"], "failed");
    }
    let error = "exit status: 7: the last line; ";
    assert_eq!(told[0]["error"], format!("{error}delivered again in 0.3 s"));
    let last = "attempts used up: it becomes a dead letter at its next turn, in 0.6 s";
    assert_eq!(told[1]["error"], format!("{error}{last}"), "and the backoff grows");
    let dead = json_in(dir.path(), &["dead", "list", JOBS, "--json"]);
    assert_eq!(dead[0]["death"]["reason"], "max_attempts");
    assert_eq!(dead[0]["last_error"], "exit status: 7: the last line");
}

#[test]
fn by_default_a_failure_waits_for_a_minute() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["send", JOBS, "x"]);
    let ran = mailbox_in(dir.path(), &["work", JOBS, "--idle-exit", "50ms", "--", "false"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.ends_with("delivered again in 60 s\n0 done, 1 failed\n"), "{ran:?}");
    let seen = json_in(dir.path(), &["peek", JOBS, "--json"]);
    let wait = seen[0]["receivable_in_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&wait), "{seen:?}");
}

#[test]
fn a_lease_is_kept_while_its_command_runs() {
    for scheme in SCHEMES {
        let dir = tempdir().unwrap();
        let jobs = format!("{scheme}:inbox/jobs");
        done_in(dir.path(), &["send", &jobs, "x"]);
        let script = "echo $MAILBOX_DELIVERY_COUNT >> runs; sleep 3";
        let arguments =
            ["work", &jobs, "-j", "2", "--visibility", "1s", "--idle-exit", "100ms", "--"];
        let ran = mailbox_in(dir.path(), &[&arguments[..], &["sh", "-c", script]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "1 done, 0 failed\n"));
        // A second worker was free all the time, and would have got it.
        assert_eq!(lines(dir.path(), "runs"), ["1"]);
        assert_eq!(done_in(dir.path(), &["count", &jobs]), "0\n");
    }
}

#[test]
fn when_the_lease_is_lost_the_command_is_ended_and_nothing_settled() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["send", JOBS, "x"]);
    let script = "trap 'echo ended >> ends; exit 0' TERM; echo $MAILBOX_RECEIPT_HANDLE > handle;
                  sleep 60 & wait";
    let arguments = ["--visibility", "1s", "--max-messages", "1", "--", "sh", "-c", script];
    let worker = work(dir.path(), &arguments);
    wait_until("it runs", || !lines(dir.path(), "handle").is_empty());
    let handle = lines(dir.path(), "handle").remove(0);
    // Somebody else settles the delivery.
    done_in(dir.path(), &["nack", JOBS, &handle, "--delay", "1h"]);
    let output = worker.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("lease lost: "), "{said}");
    assert!(said.ends_with("0 done, 0 failed, 1 lost\n"), "{said}");
    assert_eq!(lines(dir.path(), "ends"), ["ended"]);
    let seen = json_in(dir.path(), &["peek", JOBS, "--json"]);
    assert!(seen[0]["receivable_in_ms"].as_u64().unwrap() > 3_000_000, "{seen:?}");
}

#[test]
fn told_to_end_it_lets_commands_finish_and_takes_no_more() {
    for signal in [Signal::INT, Signal::TERM] {
        let dir = tempdir().unwrap();
        fill(dir.path(), 5);
        let script = "touch started; until [ -e go ]; do sleep 0.05; done; echo \"$(cat)\" >> done";
        let worker = work(dir.path(), &["-j", "2", "--", "sh", "-c", script]);
        wait_until("it runs", || {
            stats(dir.path())["invisible"] == 2 && dir.path().join("started").exists()
        });
        tell(&worker, signal);
        // What runs has not heard the signal, and what waits is left alone.
        fs::write(dir.path().join("go"), "").unwrap();
        let output = worker.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.ends_with("2 done, 0 failed\n"), "{said}");
        let mut done = lines(dir.path(), "done");
        done.sort();
        assert_eq!(done, ["1", "2"]);
        assert_eq!(stats(dir.path())["ready"], 3);
    }
}

#[test]
fn a_command_that_does_not_end_in_time_is_killed_and_its_message_given_back() {
    let dir = tempdir().unwrap();
    fill(dir.path(), 1);
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    for (drain, second) in [("100ms", false), ("1h", true)] {
        let _ = fs::remove_file(dir.path().join("pid"));
        let arguments = ["--drain", drain, "--grace", "200ms", "--", "sh", "-c", script];
        let mut worker = work(dir.path(), &arguments);
        wait_until("it runs", || !lines(dir.path(), "pid").is_empty());
        let pid = lines(dir.path(), "pid").remove(0);
        let started = Instant::now();
        tell(&worker, Signal::TERM);
        let mut said = BufReader::new(worker.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "waiting for 1 running\n");
        if second {
            tell(&worker, Signal::TERM);
        }
        line.clear();
        said.read_to_string(&mut line).unwrap();
        assert!(started.elapsed() < Duration::from_secs(20));
        assert_eq!(worker.wait().unwrap().code(), Some(0));
        let said = line;
        assert!(said.ends_with("0 done, 0 failed, 1 given back\n"), "{said}");
        wait_until("it is gone", || !Path::new(&format!("/proc/{pid}")).exists());
        assert_eq!(stats(dir.path())["ready"], 1, "receivable at once");
    }
}

#[test]
fn what_a_command_says_when_it_is_cut_short_is_no_answer() {
    let dir = tempdir().unwrap();
    let jobs = ["send", JOBS, "work", "--reply-to", "answers"];
    done_in(dir.path(), &jobs);
    let script = "trap 'exit 0' TERM; printf half; touch started; while :; do sleep 0.05; done";
    let worker = work(dir.path(), &["--drain", "0s", "--", "sh", "-c", script]);
    wait_until("it runs", || dir.path().join("started").exists());
    tell(&worker, Signal::TERM);
    let output = worker.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("0 done, 0 failed, 1 given back\n"), "{said}");
    assert_eq!(stats(dir.path())["ready"], 1);
    let answers = mailbox_in(dir.path(), &["count", &JOBS.replace("jobs", "answers")]);
    assert_eq!(answers.stdout, "0\n", "{answers:?}");
}

#[test]
fn a_command_that_cannot_be_run_costs_no_message_an_attempt() {
    let dir = tempdir().unwrap();
    fill(dir.path(), 2);
    let ran = mailbox_in(dir.path(), &["work", JOBS, "--", "./nowhere"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("cannot run ./nowhere"), "{ran:?}");
    fs::write(dir.path().join("text"), "x").unwrap();
    let ran = mailbox_in(dir.path(), &["work", JOBS, "--", "./text"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let seen = json_in(dir.path(), &["peek", JOBS, "--json"]);
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|it| it["delivery_count"] == 0 && it["state"] == "ready"), "{seen:?}");
}

#[test]
fn a_command_that_reads_nothing_or_leaves_something_running_holds_nothing_up() {
    let dir = tempdir().unwrap();
    let large = vec![b'x'; 1024 * 1024];
    fs::write(dir.path().join("large"), &large).unwrap();
    done_in(dir.path(), &["send", JOBS, "--file", "large"]);
    let started = Instant::now();
    let script = "sleep 30 & exit 0";
    let one = ["work", JOBS, "--max-messages", "1", "--", "sh", "-c", script];
    let output = binary().current_dir(dir.path()).args(one).stdout(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "1 done, 0 failed\n");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[test]
fn one_message_can_be_worked_on_by_receive() {
    for scheme in SCHEMES {
        let dir = tempdir().unwrap();
        let jobs = format!("{scheme}:inbox/jobs");
        let nothing = mailbox_in(dir.path(), &["receive", &jobs, "--wait", "1ms", "--exec", "cat"]);
        assert_eq!(nothing.code, Some(3), "{nothing:?}");
        done_in(dir.path(), &["send", &jobs, "one"]);
        let sed = ["receive", &jobs, "--exec", "sed", "-e", "s/^/got /"];
        assert_eq!(done_in(dir.path(), &sed), "got one");
        assert_eq!(done_in(dir.path(), &["count", &jobs]), "0\n");
        done_in(dir.path(), &["send", &jobs, "two"]);
        let ran = mailbox_in(dir.path(), &["receive", &jobs, "--exec", "sh", "-c", "exit 9"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains("exit status: 9; delivered again in 60 s"), "{ran:?}");
        assert_eq!(done_in(dir.path(), &["count", &jobs]), "1\n");
    }
}

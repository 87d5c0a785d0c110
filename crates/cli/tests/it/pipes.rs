//! Pipes that break, bytes that are no text, and signals while waiting.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;

use super::{SCHEMES, binary, done_in, json_in, mailbox_in, tell, wait_until};

/// Runs a line of bash, in which `mailbox` is the binary.
fn bash(dir: &std::path::Path, line: &str) -> (Option<i32>, String) {
    let line = format!("mailbox() {{ '{}' \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_mailbox"));
    let mut bash = Command::new("timeout");
    let output = bash.current_dir(dir).args(["60", "bash", "-c", &line]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "", "{line}");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn bytes_that_are_no_text_come_out_as_they_went_in() {
    for scheme in SCHEMES {
        let dir = tempdir().unwrap();
        let jobs = format!("{scheme}:inbox/jobs");
        for payload in [&b"\x00\xFF"[..], b"\xC3", b"a\r\nb", b"\n\n", b"{\"a\":\xFF}\n"] {
            let mut send = binary()
                .current_dir(dir.path())
                .args(["send", &jobs])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            send.stdin.take().unwrap().write_all(payload).unwrap();
            assert!(send.wait().unwrap().success());
            let output = binary()
                .current_dir(dir.path())
                .args(["receive", &jobs, "--ack"])
                .output()
                .unwrap();
            let mut expected = payload.to_vec();
            if !expected.ends_with(b"\n") {
                expected.push(b'\n');
            }
            assert_eq!(output.stdout, expected);
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
    }
}

#[test]
fn a_reader_that_has_heard_enough_ends_it_quietly_and_loses_nothing() {
    let dir = tempdir().unwrap();
    bash(dir.path(), "seq 1 500 | mailbox send dir:inbox/jobs --lines > ids");
    let line =
        "mailbox receive dir:inbox/jobs --follow --max 100 | head -n 1; echo ${PIPESTATUS[0]}";
    let (code, stdout) = bash_quietly(dir.path(), line);
    assert_eq!((code, stdout.as_str()), (Some(0), "1\n0\n"));
    assert_eq!(done_in(dir.path(), &["count", "dir:inbox/jobs"]), "500\n");
}

/// As `bash`, where receipt handles on stderr are no news.
fn bash_quietly(dir: &std::path::Path, line: &str) -> (Option<i32>, String) {
    bash(dir, &format!("exec 2> errors; {line}"))
}

#[test]
fn a_follower_whose_reader_is_gone_ends_while_it_waits() {
    for scheme in SCHEMES {
        let dir = tempdir().unwrap();
        let started = Instant::now();
        let line = format!(
            "mailbox send {scheme}:inbox/jobs one > ids
             mailbox receive {scheme}:inbox/jobs --follow --ack | head -n 1
             echo ${{PIPESTATUS[0]}}"
        );
        assert_eq!(bash(dir.path(), &line), (Some(0), "one\n0\n".to_owned()));
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        assert_eq!(done_in(dir.path(), &["count", &format!("{scheme}:inbox/jobs")]), "0\n");
    }
}

#[test]
fn what_nobody_has_read_is_not_acknowledged() {
    for scheme in SCHEMES {
        let dir = tempdir().unwrap();
        let jobs = format!("{scheme}:inbox/jobs");
        done_in(dir.path(), &["send", &jobs, "precious"]);
        // The reader is gone before anything is written.
        let line = format!("exec 3> >(:); wait $!; mailbox receive {jobs} --ack >&3; echo $?");
        assert_eq!(bash(dir.path(), &line), (Some(0), "0\n".to_owned()));
        let got = json_in(dir.path(), &["receive", &jobs, "--wait", "5s", "--json"]);
        assert_eq!(got[0]["payload_b64"], "cHJlY2lvdXM=");
    }
}

#[test]
fn every_command_ends_quietly_when_nobody_reads() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["send", "dir:inbox/jobs", "1"]);
    for command in [
        "peek dir:inbox/jobs",
        "peek dir:inbox/jobs --json",
        "count dir:inbox/jobs",
        "stats dir:inbox/jobs",
        "stats dir:inbox/jobs --json",
        "list dir:inbox",
        "send dir:inbox/jobs x",
        "completions bash",
    ] {
        let line = format!("exec 3> >(:); wait $!; mailbox {command} >&3; echo $?");
        assert_eq!(bash(dir.path(), &line), (Some(0), "0\n".to_owned()), "{command}");
    }
}

#[test]
fn a_follower_prints_what_comes_and_stops_when_told() {
    for signal in [Signal::INT, Signal::TERM] {
        let dir = tempdir().unwrap();
        let mut follow = binary()
            .current_dir(dir.path())
            .args(["receive", "dir:inbox/jobs", "--follow", "--ack"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        for number in 0..3 {
            let text = format!("message {number}");
            done_in(dir.path(), &["send", "dir:inbox/jobs", &text]);
            assert_eq!(lines.next().unwrap().unwrap(), text);
        }
        tell(&follow, signal);
        assert_eq!(follow.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        follow.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
        assert_eq!(done_in(dir.path(), &["count", "dir:inbox/jobs"]), "0\n");
    }
}

#[test]
fn a_follower_stops_after_so_many() {
    let dir = tempdir().unwrap();
    bash(dir.path(), "seq 1 5 | mailbox send dir:inbox/jobs --lines > ids");
    let three = ["receive", "dir:inbox/jobs", "--follow", "--count", "3", "--max", "2", "--ack"];
    assert_eq!(done_in(dir.path(), &three), "1\n2\n3\n");
    assert_eq!(done_in(dir.path(), &["count", "dir:inbox/jobs"]), "2\n");
}

#[test]
fn a_receive_that_waits_is_woken_or_interrupted() {
    let dir = tempdir().unwrap();
    let receive = || {
        binary()
            .current_dir(dir.path())
            .args(["receive", "dir:inbox/jobs", "--wait", "5m", "--ack"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let waiting = receive();
    done_in(dir.path(), &["send", "dir:inbox/jobs", "here"]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"here\n"[..]));
    let mut waiting = receive();
    // A signal before it listens for signals ends it too, in another way.
    wait_until("it listens", || catches(&waiting, Signal::TERM));
    tell(&waiting, Signal::TERM);
    let code = waiting.wait().unwrap().code();
    assert!(code == Some(130), "{code:?}");
}

/// Whether a process has a handler for a signal.
fn catches(child: &Child, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(caught, 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}

#[test]
fn lines_are_sent_as_they_come() {
    let dir = tempdir().unwrap();
    let mut send = binary()
        .current_dir(dir.path())
        .args(["send", "dir:inbox/jobs", "--lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = send.stdin.take().unwrap();
    let mut ids = BufReader::new(send.stdout.take().unwrap()).lines();
    for line in ["one", "", "three"] {
        writeln!(input, "{line}").unwrap();
        assert_eq!(ids.next().unwrap().unwrap().len(), 26);
    }
    input.write_all(b"half").unwrap();
    drop(input);
    assert_eq!(ids.next().unwrap().unwrap().len(), 26);
    assert!(send.wait().unwrap().success());
    let got = mailbox_in(dir.path(), &["receive", "dir:inbox/jobs", "--max", "9", "--ack"]);
    assert_eq!(got.stdout, "one\n\nthree\nhalf\n");
}

#[test]
fn without_a_stdout_nothing_is_acknowledged() {
    for scheme in SCHEMES {
        let dir = tempdir().unwrap();
        let jobs = format!("{scheme}:inbox/jobs");
        done_in(dir.path(), &["send", &jobs, "precious"]);
        for more in ["", " --follow", " --json"] {
            let line = format!("mailbox receive {jobs} --ack{more} >&- 2> said; echo $?");
            assert_eq!(bash(dir.path(), &line), (Some(0), "2\n".to_owned()), "{more}");
        }
        let said = std::fs::read_to_string(dir.path().join("said")).unwrap();
        assert!(said.contains("stdout is closed"), "{said}");
        assert_eq!(done_in(dir.path(), &["count", &jobs]), "1\n");
        // Whoever means it says so.
        let line = format!("mailbox receive {jobs} --ack > /dev/null");
        assert_eq!(bash(dir.path(), &line), (Some(0), String::new()));
        assert_eq!(done_in(dir.path(), &["count", &jobs]), "0\n");
    }
}

#[test]
fn an_id_that_cannot_be_printed_is_said_to_be_sent() {
    let dir = tempdir().unwrap();
    for command in ["mailbox send dir:inbox/jobs x", "echo x | mailbox send dir:inbox/jobs --lines"]
    {
        let line = format!("{command} > /dev/full 2> said; echo $?");
        assert_eq!(bash(dir.path(), &line), (Some(0), "1\n".to_owned()), "{command}");
        let said = std::fs::read_to_string(dir.path().join("said")).unwrap();
        let id = json_in(dir.path(), &["receive", "dir:inbox/jobs", "--json"])[0]["id"].clone();
        let expected = format!("mailbox: {} was sent, but", id.as_str().unwrap());
        assert!(said.starts_with(&expected), "{said}");
    }
}

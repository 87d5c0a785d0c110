//! Answers of a service that are lost on their way: what was asked for may have been done.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::spawn;

use serde_json::Value;

use super::server::{Home, Server};
use super::{Ran, output_of};

/// Stands between a client and a service, and keeps back the first answer to this path: the
/// connection is cut instead. Gives its address.
fn cutting(service: &Server, path: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = service.url.trim_start_matches("http://").to_owned();
    let is_cut = Arc::new(AtomicBool::new(false));
    spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&target).unwrap());
            let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let is_meant = Arc::new(AtomicBool::new(false));
            let (is_cut, is_next) = (Arc::clone(&is_cut), Arc::clone(&is_meant));
            spawn(move || {
                pass(client, to_server, |bytes| {
                    let has_path = bytes.windows(path.len()).any(|it| it == path.as_bytes());
                    if has_path && !is_cut.swap(true, Ordering::SeqCst) {
                        is_next.store(true, Ordering::SeqCst);
                    }
                    true
                });
            });
            spawn(move || pass(server, to_client, |_| !is_meant.load(Ordering::SeqCst)));
        }
    });
    url
}

/// Passes on what comes for as long as it may; then neither side hears more.
fn pass(mut from: TcpStream, mut to: TcpStream, mut may: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if !may(&buffer[..len]) || to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Runs a command with what a capability for these operations allows, and this on its stdin.
fn run(home: &Home, ops: &str, arguments: &[&str], input: &[u8]) -> Ran {
    let token = home.done(&["cap", "mint", "--op", ops]);
    let mut command = home.command(arguments);
    let command = command.env("MAILBOX_CAP", token).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    output_of(child)
}

/// The second try found the delivery gone, and it was called lost.
#[test]
fn a_worker_that_is_not_answered_does_not_call_lost_what_was_settled() {
    let home = Home::new();
    let service = home.serve(&[]);
    for (command, left) in [("true", "0"), ("false", "1")] {
        home.done(&["send", "jobs", "x"]);
        let jobs = format!("{}/jobs", cutting(&service, "/v1/settle/batch"));
        let work = ["work", &jobs, "--json", "--max-messages", "1", "--", command];
        let ran = run(&home, "recv,ack,nack", &work, b"");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(told["outcome"], "in_doubt", "{ran:?}");
        let error = told["error"].as_str().unwrap();
        let expected = "settled, or its lease has ended: the answer was lost (";
        assert!(error.starts_with(expected), "{ran:?}");
        assert_eq!(home.done(&["count", "jobs"]), left);
    }
    home.done(&["send", "one", "x"]);
    let one = format!("{}/one", cutting(&service, "/v1/settle/batch"));
    let ran = run(&home, "recv,ack,nack", &["receive", &one, "--exec", "true"], b"");
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stderr.contains("settled, or its lease has ended"), "{ran:?}");
}

/// They were said not to be sent, and sent again.
#[test]
fn lines_that_may_have_been_sent_are_not_said_not_to_be() {
    let home = Home::new();
    let service = home.serve(&[]);
    let jobs = format!("{}/jobs", cutting(&service, "/v1/send/batch"));
    let ran = run(&home, "send", &["send", &jobs, "--lines"], b"one\ntwo\n");
    assert_eq!((ran.code, &*ran.stdout), (Some(6), ""), "{ran:?}");
    let expected = "lines 1 to 2 may not have been sent; 0 before them were, none behind: ";
    assert!(ran.stderr.contains(expected), "{ran:?}");
    assert_eq!(home.done(&["count", "jobs"]), "2");
}

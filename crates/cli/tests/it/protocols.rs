//! One service by several addresses: what is the same there, and addresses that lead nowhere.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::server::{Home, Server};
use super::{mailbox, tell, wait_until};

/// The addresses of a mailbox of a service, by each protocol.
fn addresses(service: &Server, name: &str) -> [String; 3] {
    let grpc = service.url.replacen("http", "grpc", 1);
    [service.url.clone(), grpc, service.oap()].map(|base| format!("{base}/{name}"))
}

/// A worker by one protocol could not reply to a call by another: the reply address was one of a
/// place that no allow-list had.
#[test]
fn a_worker_replies_to_calls_by_whatever_protocol_they_come() {
    let home = Home::new();
    let service = home.serve(&[]);
    let script = "tr a-z A-Z; echo \" $MAILBOX_REPLY_TO\"";
    let work = ["work", "jobs", "--max-messages", "3", "--", "sh", "-c", script];
    let mut worker = home.command(&work).spawn().unwrap();
    for address in addresses(&service, "jobs") {
        let reply = home.done(&["call", &address, "hello", "--timeout", "20s"]);
        // A command finds the mailbox too, wherever it looks from.
        assert!(reply.starts_with(&format!("HELLO {}/reply-", service.url)), "{reply}");
    }
    assert!(worker.wait().unwrap().success());
}

/// A move from a mailbox to itself by another address never ended.
#[test]
fn a_move_to_the_same_mailbox_by_another_address_ends_and_loses_nothing() {
    let home = Home::new();
    let service = home.serve(&[]);
    let [http, grpc, oap] = addresses(&service, "jobs");
    for body in ["1", "2", "3"] {
        home.done(&["send", "jobs", body]);
    }
    for (from, to) in [(&oap, &http), (&http, &grpc), (&grpc, &oap)] {
        let ran = home.run(&["move", from, to]);
        assert_eq!((ran.code, &*ran.stdout), (Some(2), "0\n"), "{ran:?}");
        assert!(ran.stderr.contains("from and to are the same mailbox"), "{ran:?}");
        assert_eq!(home.done(&["count", "jobs"]), "3");
    }
    // Each was taken out once, and put in again.
    for body in [1, 2, 3] {
        let received: Value =
            serde_json::from_str(&home.done(&["receive", "jobs", "--json"])).unwrap();
        assert_eq!((&received["body"], &received["delivery_count"]), (&body.into(), &1.into()));
        home.done(&["reject", "jobs", received["receipt_handle"].as_str().unwrap()]);
    }
    let ran = home.run(&["move", &oap, &http, "--dead"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(2), "0\n"), "{ran:?}");
    let stats: Value = serde_json::from_str(&home.done(&["stats", "jobs", "--json"])).unwrap();
    assert_eq!((&stats["ready"], &stats["dead"]), (&1.into(), &2.into()), "{stats}");
    // To another one all of them go, whatever its address.
    home.done(&["dead", "redrive", "jobs", "--all"]);
    let [_, _, other] = addresses(&service, "other");
    assert_eq!(home.done(&["move", &http, &other]), "3");
    assert_eq!(home.done(&["count", "other"]), "3");
}

/// What was on its way when a measurement was interrupted made its mailbox anew.
#[test]
fn an_interrupted_measurement_leaves_no_mailbox() {
    let home = Home::new();
    let service = home.serve(&[]);
    for address in addresses(&service, "jobs") {
        let bench = ["bench", &address, "--messages", "1000000", "--producers", "32"];
        let mut bench = home.command(&bench).stdout(Stdio::null()).spawn().unwrap();
        wait_until("it measures", || home.done(&["list"]).contains("bench-"));
        tell(&bench, Signal::INT);
        assert_eq!(bench.wait().unwrap().code(), Some(130), "{address}");
        assert_eq!(home.done(&["list"]), "", "{address}");
    }
}

/// What was wrong with an address was blamed on a service that does not run.
#[test]
fn an_address_that_can_lead_nowhere_is_refused_before_anybody_is_asked() {
    for (address, why) in [
        (
            "oap://127.0.0.1:1/a/b",
            "an address of a service is oap://host:port/name: no user, and no path",
        ),
        ("oap://127.0.0.1:99999/j", "oap://127.0.0.1:99999 has no port that is a number"),
        ("http://127.0.0.1:abc/j", "has no port that is a number"),
        ("oap://127.0.0.1:/j", "has no port that is a number"),
        (
            "http://127.0.0.1:1",
            "http://127.0.0.1:1 names no mailbox; write http://127.0.0.1:1/NAME",
        ),
        ("grpcs://127.0.0.1:1", "grpcs://127.0.0.1:1 names no mailbox"),
        ("oap://[::1]:1", "oap://[::1]:1 names no mailbox"),
        ("http://127.0.0.1:1/j?ca=x", "http: has no TLS; write https:"),
        ("grpc://127.0.0.1:1/j?ca=x", "grpc: has no TLS; write grpcs:"),
        ("oap://127.0.0.1:1/j?ca=x", "oap: has no TLS; write oaps:"),
    ] {
        let ran = mailbox(&["send", address, "x"]);
        assert_eq!(ran.code, Some(2), "{address}: {ran:?}");
        assert!(ran.stderr.contains(why), "{address}: {ran:?}");
    }
}

#[test]
fn a_service_that_is_not_there_is_named_with_the_port_that_was_tried() {
    // An address of this machine that nothing listens on, whatever runs on the usual one.
    for (base, tried) in [
        ("grpc://127.99.0.1", "grpc://127.99.0.1, port 7600 ("),
        ("grpcs://127.99.0.1", "grpcs://127.99.0.1, port 7600 ("),
        ("oap://127.99.0.1", "oap://127.99.0.1, port 7601 ("),
        ("http://127.99.0.1:1", "http://127.99.0.1:1 ("),
    ] {
        let ran = mailbox(&["send", &format!("{base}/jobs"), "x"]);
        assert_eq!(ran.code, Some(6), "{ran:?}");
        assert!(ran.stderr.contains(&format!("no service at {tried}")), "{ran:?}");
    }
}

#[test]
fn who_writes_localhost_is_told_where_the_capability_of_the_operator_is_for() {
    let home = Home::new();
    let service = home.serve(&[]);
    for address in addresses(&service, "jobs") {
        let ran = home.run(&["send", &address.replace("127.0.0.1", "localhost"), "x"]);
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.stderr.contains("(write 127.0.0.1, and that of"), "{ran:?}");
    }
}

#[test]
fn a_port_for_oap_that_cannot_be_is_refused_by_its_own_name() {
    let home = Home::new();
    for (arguments, why) in [
        (&["--oap", "0.0.0.0:0"][..], "--oap: others can connect to 0.0.0.0:0"),
        (&["--oap", "7601"], "such as 127.0.0.1:7601"),
        (
            &["--listen", "127.0.0.1:1", "--oap", "127.0.0.1:1"],
            "--oap: 127.0.0.1:1 is named by --listen as well",
        ),
    ] {
        let ran = home.run(&[&["serve"], arguments].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
}

#[test]
fn where_each_protocol_is_stands_in_the_first_lines() {
    let home = Home::new();
    // Whoever has it, this service does not get it.
    let _taken = std::net::TcpListener::bind("127.0.0.1:7601");
    let service = home.serve_by(&mut home.command(&["serve", "--listen", "127.0.0.1:0"]));
    wait_until("it has said all", || service.said().contains("/v1/topics"));
    let (said, oap) = (service.said(), service.oap());
    let grpc = service.url.replacen("http", "grpc", 1);
    assert!(said.contains(&format!("  grpc   {grpc}\n")), "{said}");
    let oap = oap.trim_start_matches("oap://");
    let moved = format!("127.0.0.1:7601 is taken: OAP/1 listens on {oap}\n");
    assert!(said.contains(&moved), "{said}");
}

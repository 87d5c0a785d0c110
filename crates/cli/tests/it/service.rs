//! `mailbox serve`, and the everyday commands on the service of this machine.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::server::Home;
use super::wait_until;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_bare_name_is_a_mailbox_of_the_service_of_this_machine() {
    let home = Home::new();
    let service = home.serve(&[]);
    assert_eq!(home.run(&["receive", "jobs"]).code, Some(3), "nothing there");
    let id = home.done(&["send", "jobs", "one", "--attr", "colour=red", "--key", "k"]);
    assert_eq!(home.done(&["send", "jobs", "one", "--key", "k"]), id, "the key is remembered");
    home.done(&["send", "jobs", "two", "--delay", "1h"]);
    assert_eq!(home.done(&["list"]), "jobs");
    assert_eq!(home.done(&["count", "jobs"]), "2");
    assert!(home.done(&["peek", "jobs"]).contains("one"));
    let received = json(&home.done(&["receive", "jobs", "--json"]));
    assert_eq!((&received["id"], &received["attributes"]["colour"]), (&id.into(), &"red".into()));
    let handle = received["receipt_handle"].as_str().unwrap();
    home.done(&["extend", "jobs", "--visibility", "1m", handle]);
    home.done(&["nack", "jobs", handle, "--error", "not now", "--delay", "0"]);
    assert_eq!(home.run(&["ack", "jobs", handle]).code, Some(3), "a stale handle");
    let again = json(&home.done(&["receive", "jobs", "--json"]));
    assert_eq!(again["delivery_count"], 2);
    home.done(&["reject", "jobs", again["receipt_handle"].as_str().unwrap()]);
    assert!(home.done(&["explain", "jobs", again["id"].as_str().unwrap()]).contains("rejected"));
    let stats = json(&home.done(&["stats", "jobs", "--json"]));
    assert_eq!((&stats["delayed"], &stats["dead"]), (&1.into(), &1.into()), "{stats}");
    assert!(home.done(&["dead", "list", "jobs"]).contains("rejected"));
    home.done(&["dead", "redrive", "jobs", "--all"]);
    // The whole address means the same.
    let whole = format!("{}/jobs", service.url);
    assert_eq!(home.done(&["receive", &whole, "--ack"]), "one");
    home.done(&["purge", "jobs", "--yes"]);
    assert_eq!(home.done(&["count", "jobs"]), "0");
    home.done(&["remove", "jobs", "--yes"]);
    assert_eq!(home.done(&["list"]), "");
}

/// Everything that can be done to a mailbox of the service at this address.
fn every_command(home: &Home, base: &str) {
    let jobs = &*format!("{base}/jobs");
    let id = home.done(&["send", jobs, "one", "--attr", "colour=red", "--key", "k"]);
    assert_eq!(home.done(&["send", jobs, "one", "--key", "k"]), id, "the key is remembered");
    home.done(&["send", jobs, "two", "--delay", "1h"]);
    assert_eq!(home.done(&["count", jobs]), "2");
    assert!(home.done(&["list", base]).contains("jobs"));
    assert!(home.done(&["peek", jobs]).contains("one"));
    let received = json(&home.done(&["receive", jobs, "--json"]));
    let handle = received["receipt_handle"].as_str().unwrap();
    home.done(&["extend", jobs, "--visibility", "1m", handle]);
    home.done(&["nack", jobs, handle, "--error", "not now", "--delay", "0"]);
    assert_eq!(home.run(&["ack", jobs, handle]).code, Some(3), "a stale handle");
    let again = json(&home.done(&["receive", jobs, "--json"]));
    assert_eq!(again["delivery_count"], 2);
    home.done(&["reject", jobs, again["receipt_handle"].as_str().unwrap()]);
    assert!(home.done(&["explain", jobs, again["id"].as_str().unwrap()]).contains("rejected"));
    let stats = json(&home.done(&["stats", jobs, "--json"]));
    assert_eq!((&stats["delayed"], &stats["dead"]), (&1.into(), &1.into()), "{stats}");
    assert!(home.done(&["dead", "list", jobs]).contains("rejected"));
    home.done(&["dead", "redrive", jobs, "--all"]);
    assert_eq!(home.done(&["receive", jobs, "--ack"]), "one");
    home.done(&["send", "dir:inbox/jobs", "from a folder"]);
    home.done(&["move", "dir:inbox/jobs", jobs]);
    assert_eq!(home.done(&["receive", jobs, "--ack"]), "from a folder");
    let mut worker = home.command(&["work", jobs, "--", "tr", "a-z", "A-Z"]).spawn().unwrap();
    assert_eq!(home.done(&["call", jobs, "hello", "--timeout", "20s"]), "HELLO");
    super::tell(&worker, Signal::TERM);
    assert!(worker.wait().unwrap().success());
    home.done(&["purge", jobs, "--yes"]);
    assert_eq!(home.done(&["count", jobs]), "0");
    home.done(&["remove", jobs, "--yes"]);
}

#[test]
fn every_command_works_by_every_protocol() {
    let home = Home::new();
    let service = home.serve(&[]);
    let grpc = service.url.replacen("http", "grpc", 1);
    let oap = service.oap();
    for base in [&service.url, &grpc, &oap] {
        every_command(&home, base);
    }
    let few = ["--messages", "40", "--batch", "4", "--producers", "2"];
    let [one, two, three] = [&service.url, &grpc, &oap].map(|base| format!("{base}/jobs"));
    let compared = home.done(&[&["bench", &one, &two, &three][..], &few].concat());
    assert_eq!(compared.matches("times the first's sends").count(), 2, "{compared}");
    assert!(compared.contains("a service, over oap: 40 messages"), "{compared}");
    let documents = json(&home.done(&[&["bench", &one, &three, "--json"][..], &few].concat()));
    assert_eq!(documents[1]["address"], *three, "{documents}");
    assert!(documents[0]["compared"].is_null() && documents[1]["compared"]["send"].is_number());
    let nowhere = home.run(&[&["bench", &one, "oap://127.0.0.1:1/jobs"][..], &few].concat());
    assert_eq!((nowhere.code, &*nowhere.stdout), (Some(6), ""), "nothing is measured: {nowhere:?}");
    let tls = three.replace("oap:", "oaps:");
    let refused = home.run(&["send", &tls, "x"]);
    assert_ne!(refused.code, Some(0), "there is no TLS: {refused:?}");
}

#[test]
fn messages_move_to_the_service_and_a_worker_answers_there() {
    let home = Home::new();
    let _service = home.serve(&[]);
    home.done(&["send", "dir:inbox/jobs", "from a folder"]);
    home.done(&["move", "dir:inbox/jobs", "jobs"]);
    assert_eq!(home.done(&["receive", "jobs", "--ack"]), "from a folder");
    let mut worker = home.command(&["work", "jobs", "--", "tr", "a-z", "A-Z"]).spawn().unwrap();
    assert_eq!(home.done(&["call", "jobs", "hello", "--timeout", "20s"]), "HELLO");
    super::tell(&worker, Signal::TERM);
    assert!(worker.wait().unwrap().success());
}

#[test]
fn traces_go_to_the_collector_that_the_settings_name_at_the_latest_when_the_service_ends() {
    let home = Home::new();
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let service = home.serve(&["--otlp-endpoint", &endpoint]);
    home.done(&["send", "jobs", "one"]);
    let taking = std::thread::spawn(move || {
        let mut preface = [0; 24];
        collector.accept().unwrap().0.read_exact(&mut preface).unwrap();
        preface
    });
    assert!(service.end().success(), "whether it takes them or not");
    assert_eq!(&taking.join().unwrap(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "a gRPC client");
    let refused = home.run(&["config", "check", "--otlp-endpoint", "localhost:4317"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("http://HOST:PORT"), "{refused:?}");
}

#[test]
fn what_was_sent_is_there_after_a_restart_and_after_a_power_cut() {
    let home = Home::new();
    let service = home.serve(&[]);
    home.done(&["send", "jobs", "one"]);
    assert!(service.end().success());
    let service = home.serve(&[]);
    home.done(&["send", "jobs", "two"]);
    service.kill();
    // What it has left behind leads nowhere, and that is said.
    let refused = home.run(&["count", "jobs"]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.stderr.contains("`mailbox serve` starts one"), "{refused:?}");
    let _service = home.serve(&[]);
    assert_eq!(home.done(&["receive", "jobs", "--ack"]), "one");
    assert_eq!(home.done(&["receive", "jobs", "--ack"]), "two");
}

#[test]
fn nobody_else_can_read_the_data_directory() {
    let home = Home::new();
    let _service = home.serve(&["--data", "here"]);
    let here = home.path().join("here");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&here), 0o700);
    for file in ["operator.cap", "root-keys", "url"] {
        assert_eq!(mode(&here.join(file)), 0o600, "{file}");
    }
    home.done(&["send", "jobs", "x", "--data", "here"]);
    let by_variable = home.command(&["count", "jobs"]).env("MAILBOX_DATA", &here).output().unwrap();
    assert_eq!(by_variable.stdout, b"1\n");
    assert!(!home.data().exists(), "only what was named is made");
}

#[test]
fn without_a_capability_nothing_works() {
    let home = Home::new();
    let service = home.serve(&[]);
    let stranger = Home::new();
    let address = format!("{}/jobs", service.url);
    for arguments in [&["send", &address, "x"][..], &["count", &address]] {
        let refused = stranger.run(arguments);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stderr.contains("MAILBOX_CAP"), "{refused:?}");
    }
    assert_eq!(stranger.with("AgEH", &["send", &address, "x"]).code, Some(4));
}

#[test]
fn told_to_end_it_lets_go_at_once_of_those_who_wait() {
    let home = Home::new();
    let service = home.serve(&[]);
    let mut waiting = home
        .command(&["receive", "jobs", "--wait", "20s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    home.done(&["send", "other", "x"]);
    let began = Instant::now();
    assert_eq!(service.end().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "the drain time is not used up");
    assert!(!home.data().join("url").exists(), "it does not say any more where it is");
    assert!(home.data().join("operator.cap").exists());
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn a_second_service_on_the_same_data_is_refused() {
    let home = Home::new();
    let service = home.serve(&[]);
    let second = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, Some(6), "{second:?}");
    assert!(second.stderr.contains(&service.id().to_string()), "{second:?}");
    home.done(&["send", "jobs", "the first one is still found"]);
    let address = service.url.trim_start_matches("http://");
    let other = home.run(&["serve", "--listen", address, "--data", "other"]);
    assert_eq!(other.code, Some(6), "{other:?}");
    assert!(other.stderr.contains("does a service run already?"), "{other:?}");
}

#[test]
fn it_is_ready_within_a_second() {
    let home = Home::new();
    let starts = [0, 1, 2].map(|_| {
        let service = home.serve(&[]);
        let took = service.took;
        service.end();
        took
    });
    let best = starts.into_iter().min().unwrap();
    eprintln!("ready after {starts:?}");
    assert!(best < Duration::from_secs(1), "{starts:?}");
}

#[test]
fn the_service_is_also_on_a_socket_in_the_file_system() {
    let home = Home::new();
    let service = home.serve(&["--unix", "here.sock"]);
    assert!(service.said().contains("here.sock"), "{}", service.said());
    let path = home.path().join("here.sock");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "nobody else can connect");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(service.end().success());
    assert!(!path.exists());
}

#[test]
fn systemd_is_told_how_the_service_is_doing() {
    let home = Home::new();
    let path = home.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(super::DEADLINE)).unwrap();
    let heard = || {
        let mut buffer = [0; 256];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let service = home.serve_by(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(heard(), "READY=1");
    service.tell(Signal::HUP);
    let reloading = heard();
    let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(micros.parse::<u64>().is_ok(), "{reloading}");
    assert_eq!(heard(), "READY=1");
    assert!(service.end().success());
    assert_eq!(heard(), "STOPPING=1");
}

/// Makes `cert.pem` and `key.pem` for this machine.
fn certify(home: &Home, name: &str) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn a_collector_with_a_certificate_that_the_machine_trusts_gets_traces() {
    let home = Home::new();
    certify(&home, "collector");
    let mut collector = Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-alpn", "h2", "-naccept", "1"])
        .args(["-cert", "cert.pem", "-key", "key.pem"])
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(collector.stdout.take().unwrap()).lines();
    let address = lines.by_ref().find_map(|line| {
        let line = line.unwrap();
        line.strip_prefix("ACCEPT ").map(str::to_owned)
    });
    let endpoint = format!("https://{}", address.unwrap());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--otlp-endpoint", &endpoint];
    let service = home.serve_by(home.command(&arguments).env("SSL_CERT_FILE", "cert.pem"));
    home.done(&["send", "jobs", "one"]);
    let ending = std::thread::spawn(move || service.end());
    // It says on stdout what it gets.
    let preface = lines.find(|line| line.as_ref().is_ok_and(|it| it == "PRI * HTTP/2.0"));
    collector.kill().unwrap();
    collector.wait().unwrap();
    assert!(preface.is_some(), "a handshake, and a gRPC client");
    assert!(ending.join().unwrap().success());
}

#[test]
fn with_tls_it_is_used_by_https_and_new_certificates_are_taken() {
    let home = Home::new();
    let certify = |name: &str| certify(&home, name);
    certify("first");
    let service = home.serve(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    assert!(service.url.starts_with("https://127.0.0.1:"), "{}", service.url);
    let jobs = format!("{}/jobs?ca=cert.pem", service.url);
    home.done(&["send", &jobs, "over TLS"]);
    assert_ne!(home.run(&["count", &format!("{}/jobs", service.url)]).code, Some(0), "not trusted");
    certify("second");
    assert_ne!(home.run(&["count", &jobs]).code, Some(0), "the old one is still shown");
    service.tell(Signal::HUP);
    service.wait_for("settings read again");
    wait_until("the new one is shown", || home.run(&["count", &jobs]).code == Some(0));
    let url = format!("{}?ca=cert.pem", service.url);
    let by_variable = home.command(&["count", "jobs"]).env("MAILBOX_URL", url).output().unwrap();
    assert_eq!(by_variable.stdout, b"1\n", "{by_variable:?}");
    let grpc = service.url.replacen("https", "grpcs", 1);
    for base in [&service.url, &grpc, &service.oap()] {
        let mut count = home.command(&["count", &format!("{base}/jobs")]);
        let trusted = count.env("SSL_CERT_FILE", "cert.pem").output().unwrap();
        assert_eq!(trusted.stdout, b"1\n", "{base}: {trusted:?}");
    }
    // A command that runs for a message can follow the address that it is to reply to.
    home.done(&["send", &jobs, "two", "--reply-to", "answers"]);
    let by_oap = format!("{}/jobs?ca=cert.pem", service.oap());
    let script = "echo \"$MAILBOX_REPLY_TO\"";
    home.done(&["work", &by_oap, "--max-messages", "2", "--", "sh", "-c", script]);
    let answers = home.done(&["receive", &jobs.replace("/jobs", "/answers"), "--ack"]);
    assert!(answers.starts_with(&service.oap()), "{answers}");
    assert_eq!(home.done(&["count", &answers]), "0");
}

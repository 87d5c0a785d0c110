//! The profile that keeps nothing: no file is ever written, by nobody who has it running.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use mailbox_wire::oap::{APP_JSON, Decoder, Flags, Frame, Header, deflate};
use serde_json::Value;

use super::server::{Home, Server};

/// Everything under a directory, and when it was changed last.
fn tree(path: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let mut all = BTreeMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.insert(path, (metadata.mtime(), metadata.mtime_nsec()));
    }
    all
}

/// What a service has said commands are to be told: where it is, and its capability.
fn exported(service: &Server) -> (String, String) {
    let said = service.said();
    let (_, rest) = said.split_once("export MAILBOX_URL=").unwrap();
    let (url, rest) = rest.split_once(" MAILBOX_CAP=").unwrap();
    (url.to_owned(), rest.lines().next().unwrap().to_owned())
}

#[test]
fn a_micronode_leaves_no_file() {
    let home = Home::new();
    fs::create_dir(home.path().join("data")).unwrap();
    let before = tree(home.path());
    let service = home.serve(&["--profile", "micronode", "--data", "data", "--log", "trace"]);
    let (url, capability) = exported(&service);
    let run = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("MAILBOX_URL", &url).env("MAILBOX_CAP", &capability);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    for _ in 0..20 {
        run(&["send", "jobs", "canary-payload"]);
    }
    run(&["receive", "jobs", "--ack"]);
    let received = run(&["receive", "jobs", "--json"]);
    let received: Value = serde_json::from_str(&received).unwrap();
    run(&["reject", "jobs", received["receipt_handle"].as_str().unwrap()]);
    assert_eq!(run(&["dead", "list", "jobs"]).matches("rejected").count(), 1);
    let token = run(&["cap", "mint", "--op", "send", "--ttl", "1h"]);
    assert_eq!(
        home.command(&["send", "jobs", "x"])
            .env("MAILBOX_URL", &url)
            .env("MAILBOX_CAP", &token)
            .output()
            .unwrap()
            .status
            .code(),
        Some(0)
    );
    run(&["cap", "rotate", "--grace", "0"]);
    assert!(
        home.command(&["send", "jobs", "x"])
            .env("MAILBOX_URL", &url)
            .env("MAILBOX_CAP", &token)
            .output()
            .unwrap()
            .status
            .code()
            == Some(4)
    );
    // No regular file is open but where this test has its stderr go.
    for entry in fs::read_dir(format!("/proc/{}/fd", service.id())).unwrap() {
        let entry = entry.unwrap();
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let is_file = fs::metadata(entry.path()).is_ok_and(|it| it.is_file());
        assert!(number == 2 || !is_file, "{number} is {}", target.display());
    }
    assert_eq!(tree(home.path()), before);
    let said = service.said();
    assert!(!said.contains("canary-payload") && !said.contains(&token), "{said}");
    assert_eq!(said.matches(&capability).count(), 1, "it is printed once");
    assert!(service.end().success());
    assert_eq!(tree(home.path()), before);
}

#[test]
fn what_a_micronode_had_is_gone_with_it() {
    let home = Home::new();
    let service = home.serve(&["--profile", "micronode"]);
    let (url, capability) = exported(&service);
    let count = |url: &str| {
        let mut command = home.command(&["count", "jobs"]);
        command.env("MAILBOX_URL", url).env("MAILBOX_CAP", &capability).output().unwrap()
    };
    assert_eq!(count(&url).stdout, b"0\n");
    service.end();
    let service = home.serve(&["--profile", "micronode"]);
    assert_eq!(count(&service.url).status.code(), Some(4), "its keys are others");
}

/// So much memory is looked at at once.
const PAGE: usize = 4096;

/// How often some bytes are in the memory of a process.
fn in_memory(process: u32, what: &[u8]) -> usize {
    use std::os::unix::fs::FileExt;

    let memory = fs::File::open(format!("/proc/{process}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(is_writable)) {
        let range = line.split(' ').next().unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let (from, to) =
            (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        // Stacks of threads are reserved in large; only what was touched can be read at all.
        let mut bytes = vec![0; usize::try_from((to - from).min(256 << 20)).unwrap()];
        let Ok(read) = memory.read_at(&mut bytes, from) else { continue };
        // Most of it is nothing, which need not be looked at byte by byte.
        for from in (0..read)
            .step_by(PAGE)
            .filter(|from| bytes[*from..(from + PAGE).min(read)].contains(&what[0]))
        {
            let all = &bytes[from..(from + PAGE + what.len() - 1).min(read)];
            found += all.windows(what.len()).filter(|window| *window == what).count();
        }
    }
    found
}

fn is_writable(permissions: &str) -> bool {
    permissions.starts_with("rw")
}

/// A service that keeps nothing gets a message by one protocol, gives it away by the same, and is
/// looked into.
fn wiped(scheme: &str, length: usize) {
    let home = Home::new();
    let service = home.serve(&["--profile", "micronode"]);
    let (url, capability) = exported(&service);
    let base = match scheme {
        "oap" => service.oap(),
        scheme => url.replacen("http", scheme, 1),
    };
    let run = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("MAILBOX_URL", &base).env("MAILBOX_CAP", &capability);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    // As it is in a message; on the wire it looks otherwise. In two halves, so that this process,
    // whose arguments others may see, does not have it whole before.
    // And more than the block of a hash, which is on a stack.
    let canary = format!("{}{}", "wipe this canary: 8c1f0e52", "-a7d94b3e6f21").repeat(8);
    fs::write(home.path().join("payload"), canary.repeat(length)).unwrap();
    for _ in 0..3 {
        run(&["send", "jobs", "--file", "payload"]);
    }
    let kept = in_memory(service.id(), canary.as_bytes());
    assert!(kept >= 3, "what is kept is in memory, or this test sees nothing");
    for _ in 0..3 {
        run(&["receive", "jobs", "--ack"]);
    }
    assert_eq!(in_memory(service.id(), canary.as_bytes()), 0, "it is wiped: {scheme}, {length}");
}

#[test]
fn what_was_acknowledged_is_wiped_from_memory() {
    for scheme in ["http", "grpc", "oap"] {
        wiped(scheme, 1);
        // More than fits into one frame of anything.
        wiped(scheme, 3_300);
    }
}

/// A client that compresses what it says.
struct Compressing {
    stream: TcpStream,
    decoder: Decoder,
    buffer: BytesMut,
    asked: u64,
}

impl Compressing {
    /// Connects, and begins a session.
    fn new(service: &Server, capability: &str) -> Self {
        let address = service.oap();
        let stream = TcpStream::connect(address.strip_prefix("oap://").unwrap()).unwrap();
        let (decoder, buffer) = (Decoder::default(), BytesMut::new());
        let mut client = Self { stream, decoder, buffer, asked: 0 };
        let (answer, _) =
            client.ask(Flags::REQ | Flags::START, "{\"op\":\"abilities\"}", capability);
        assert_eq!(answer["durable"], false);
        client
    }

    /// What is answered, and whether that is compressed.
    fn ask(&mut self, flags: Flags, document: &str, capability: &str) -> (Value, bool) {
        self.asked += 1;
        let is_compressed = flags.contains(Flags::COMP);
        let payload = match is_compressed {
            true => deflate(document.as_bytes()).expect("it becomes smaller"),
            false => document.as_bytes().to_vec(),
        };
        let header = Header::new(flags, APP_JSON, self.asked);
        let cap = capability.as_bytes().to_vec().into();
        let mut out = BytesMut::new();
        Frame { cap, ..Frame::new(header, payload.into()) }.encode(&mut out).unwrap();
        self.stream.write_all(&out).unwrap();
        let mut piece = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                let said = frame.plain_payload().unwrap();
                assert_eq!((frame.code, frame.corr_id), (200, self.asked), "{said:?}");
                let answer = serde_json::from_slice(&said).unwrap();
                return (answer, frame.flags.contains(Flags::COMP));
            }
            let count = self.stream.read(&mut piece).unwrap();
            assert_ne!(count, 0, "it is answered");
            self.buffer.extend_from_slice(&piece[..count]);
        }
    }

    /// Spaces mean nothing, but there is something to compress.
    fn compressed(&mut self, document: &str) -> (Value, bool) {
        self.ask(Flags::REQ | Flags::COMP, &format!("{document:<500}"), "")
    }
}

/// Text that becomes about half as long, and in which nothing comes twice: it is in the tables of
/// whoever inflates or compresses it as it is here.
fn digits(count: usize) -> String {
    let mut state = 0x8c1f_0e52_a7d9_4b3e_u64;
    let digit = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"0123456789abcdef"[(state >> 60) as usize])
    };
    std::iter::repeat_with(digit).take(count).collect()
}

#[test]
fn what_was_compressed_is_wiped_from_memory() {
    let home = Home::new();
    let service = home.serve(&["--profile", "micronode"]);
    let (_, capability) = exported(&service);
    let mut client = Compressing::new(&service, &capability);
    for length in [1_000, 60_000] {
        let text = digits(length);
        let canary = &text.as_bytes()[length / 2..][..200];
        let send = format!("{{\"op\":\"send\",\"topic\":\"jobs\",\"text\":\"{text}\"}}");
        for _ in 0..3 {
            client.compressed(&send);
        }
        let kept = in_memory(service.id(), canary);
        assert!(kept >= 3, "what is kept is in memory, or this test sees nothing");
        for _ in 0..3 {
            let recv = "{\"op\":\"recv\",\"topic\":\"jobs\",\"max_messages\":1,\"wait_ms\":0}";
            let (received, is_compressed) = client.compressed(recv);
            assert!(is_compressed, "the answer has to be compressed, too");
            let [message] = &received["messages"].as_array().unwrap()[..] else { panic!("one") };
            assert_eq!(message["text"], text);
            let handle = &message["receipt_handle"];
            client.ask(Flags::REQ, &format!("{{\"op\":\"ack\",\"receipt_handle\":{handle}}}"), "");
        }
        assert_eq!(in_memory(service.id(), canary), 0, "it is wiped: {length}");
    }
}

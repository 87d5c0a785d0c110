//! pymacaroons and we understand each other: what one mints or narrows, the other accepts. The
//! environment is a requirement of the tests; without it they fail.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use mailbox_wire::capability::{Capability, Refused};
use serde_json::{Value, json};

use crate::pieces::{caveats, key, key_bytes, minted};

const INSTALL: &str = "scripts/install-tools.sh makes the Python environment";

/// What the script answers, in order.
fn ask(questions: &[Value]) -> Vec<Value> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let python = target.join("python/bin/python");
    assert!(python.exists(), "{} is missing; {INSTALL}", python.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/macaroons.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python environment has an interpreter");
    // Far less than a pipe holds, so writing does not wait for reading.
    let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the script failed; if a module is missing, {INSTALL}");
    let answers: Vec<_> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const CAVEATS: [&str; 3] =
    ["op = send,recv", "topic = jobs,tenant-a:*", "exp = 2030-01-01T00:00:00Z"];

#[test]
fn python_mints_what_we_accept_byte_for_byte() {
    let answers = ask(&[json!({
        "do": "mint", "key": hex(&key_bytes(1)), "location": "mailbox",
        "identifier": "v1 k1 t-1", "caveats": CAVEATS,
    })]);
    let theirs = Capability::decode(answers[0].as_str().unwrap()).unwrap();
    assert_eq!(theirs.encode(), minted(&CAVEATS).encode());
    assert!(theirs.verify(Some(&key(1))).is_ok());
    assert_eq!(theirs.verify(Some(&key(2))).unwrap_err(), Refused::BadSignature);
}

#[test]
fn python_narrows_ours_without_a_key() {
    let ours = minted(&CAVEATS);
    let more = ["op = send", "max_bytes = 1024", "ip = 10.0.0.0/8"];
    let answers = ask(&[
        json!({"do": "attenuate", "token": ours.encode(), "caveats": more}),
        json!({"do": "attenuate", "token": ours.encode(), "caveats": ["weekday = monday"]}),
    ]);
    let narrowed = Capability::decode(answers[0].as_str().unwrap()).unwrap();
    let grant = narrowed.verify(Some(&key(1))).unwrap();
    assert_eq!(grant.ops().to_string(), "send");
    assert_eq!(grant.max_bytes(), Some(1024));
    let ours = caveats(&more)
        .iter()
        .fold(ours, |capability, caveat| capability.attenuate(caveat).unwrap());
    assert_eq!(narrowed.encode(), ours.encode());

    let unknown = Capability::decode(answers[1].as_str().unwrap()).unwrap();
    assert_eq!(unknown.verify(Some(&key(1))).unwrap_err(), Refused::Caveat);
}

#[test]
fn python_verifies_ours_and_refuses_what_is_not() {
    let ours = minted(&CAVEATS);
    let narrowed = ours.attenuate(&"rate = 100/s".parse().unwrap()).unwrap();
    let more = [&CAVEATS[..], &["rate = 100/s"]].concat();
    let question = |token: &Capability, seed: u8, caveats: &[&str]| {
        json!({
            "do": "verify", "token": token.encode(), "key": hex(&key_bytes(seed)),
            "caveats": caveats,
        })
    };
    let answers = ask(&[
        question(&ours, 1, &CAVEATS),
        question(&narrowed, 1, &more),
        question(&ours, 2, &CAVEATS),
        question(&narrowed, 1, &CAVEATS),
    ]);
    assert_eq!(answers[0], json!(true));
    assert_eq!(answers[1], json!(true));
    assert_ne!(answers[2], json!(true));
    assert_ne!(answers[3], json!(true));
}

//! Programs of strangers: Python that shares nothing with this repository but the description of a
//! protocol, or what the service says about itself. The environment is a requirement of the tests;
//! without it they fail.

use std::path::Path;
use std::process::{Command, Output};

use crate::rig::{Rig, Served};

const INSTALL: &str = "scripts/install-tools.sh makes the Python environment";

/// Runs a script against the service, and gives what it says it has done.
async fn run(script: &'static str, served: &Served) -> String {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let python = target.join("python/bin/python");
    assert!(python.exists(), "{} is missing; {INSTALL}", python.display());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python");
    let mut command = Command::new(python);
    // Nothing is left beside the scripts. A capability is not for command lines: all can see those.
    command
        .arg("-B")
        .arg(folder.join(script))
        .env("OAP_ADDRESS", served.oap.to_string())
        .env("HTTP_ADDRESS", served.address.to_string())
        .env("CAPABILITY", &served.operator);
    // The scripts bound themselves; they end after a minute whatever happens.
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Output { status, stdout, stderr } =
        output.expect("the Python environment has an interpreter");
    let (said, trouble) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(
        status.success(),
        "{script} failed ({status}); if a module is missing, {INSTALL}\n{said}{trouble}"
    );
    said.into_owned()
}

#[tokio::test]
async fn a_stranger_speaks_oap_from_its_description() {
    let served = Rig::new().start().await;
    let parts = ["vectors", "started", "one message", "many in flight", "malformed", "nobody"];
    assert_eq!(run("oap.py", &served).await.lines().collect::<Vec<_>>(), parts);
}

#[tokio::test]
async fn a_stranger_speaks_grpc_from_what_the_service_says_about_itself() {
    let served = Rig::new().start().await;
    let said = run("reflection.py", &served).await;
    let parts: Vec<_> = said.lines().collect();
    let (last, others) = parts.split_last().unwrap();
    let expected = [
        "services",
        "health",
        "one_message",
        "large_message",
        "stream",
        "batches",
        "while_open",
        "refusals",
    ];
    assert_eq!(others, expected);
    // There may be no curl.
    assert!(last.starts_with("http2"), "{last}");
}

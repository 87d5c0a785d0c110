//! Plain shell beside the program: the flows that scripts and agents follow, with the real `bash`,
//! the real `mv` and the real binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_mailbox");

/// Runs a script in a folder of its own, with the program on its path.
fn run(script: &Path, folder: &Path) -> Output {
    let programs = Path::new(BINARY).parent().expect("it is in a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    Command::new("bash")
        .arg(script)
        .current_dir(folder)
        .env("MAILBOX", BINARY)
        .env("PATH", path)
        .output()
        .expect("there is a bash")
}

fn check(script: &Path) -> String {
    let folder = tempfile::tempdir().expect("there is a place for it");
    let output = run(script, folder.path());
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", script.display());
    out.into_owned()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shell").join(name)
}

#[test]
fn writers_and_readers_with_mv_and_those_of_the_program_share_an_inbox() {
    let said = check(&script("central_inbox.sh"));
    assert!(said.contains("each once"), "{said}");
}

#[test]
fn what_a_script_took_and_left_is_delivered_again_and_dies_after_three_attempts() {
    let said = check(&script("stale_claim.sh"));
    assert!(said.contains("dead after three attempts"), "{said}");
}

#[test]
fn the_guide_for_agents_works_as_it_stands() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let blocks: Vec<&str> =
        text.split("```bash\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 4, "the guide has lost its examples");
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("guide.sh");
    std::fs::write(&script, format!("set -euo pipefail\n{}", blocks.concat())).unwrap();
    let output = run(&script, folder.path());
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let last = out.lines().last().unwrap_or_default();
    assert!(
        text.contains(&format!("The last line is `{last}`")),
        "the guide promises another end: {last}"
    );
}

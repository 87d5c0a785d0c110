//! Every rule over every file of this repository.

use std::path::{Path, PathBuf};

use mailbox_tidy::{check, line_count_noted, missing_licences, repository};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_file_keeps_every_rule() {
    let files = repository(&root());
    assert!(files.iter().any(|(path, _)| path == "crates/tidy/tests/repository.rs"));
    let found: Vec<String> = files
        .iter()
        .flat_map(|(path, text)| check(path, text))
        .map(|finding| finding.to_string())
        .collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn both_licences_are_there() {
    assert_eq!(missing_licences(&repository(&root())), Vec::<&str>::new());
}

/// Only a note: see `.config/nextest.toml`, which shows it although the test passes.
#[test]
#[expect(clippy::print_stdout, reason = "the list is meant to be read")]
fn long_files_are_listed() {
    for (path, text) in repository(&root()) {
        if let Some(lines) = line_count_noted(&path, &text) {
            println!("note: {path} has {lines} lines; would it be clearer as two files?");
        }
    }
}

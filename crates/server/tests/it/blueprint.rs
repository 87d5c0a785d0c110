//! `docs/blueprint.md` names a test for every invariant and every gate, and each of them exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is quoted in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Rows of the tables: an id, and what is quoted in the rest of its row.
fn rows(page: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ") else { continue };
        let Some((id, rest)) = row.split_once(" |") else { continue };
        if id.starts_with("I-") || id.starts_with("G-") {
            let before = rows.insert(id.to_owned(), quoted(rest).map(str::to_owned).collect());
            assert!(before.is_none(), "{id} is there twice");
        }
    }
    rows
}

/// Whether a file has a test, a case or an experiment of this name.
fn has(file: &Path, name: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(file) else { return false };
    let experiment = [format!("=> \"{name}\""), format!("=> [\"{name}\",")];
    if experiment.iter().any(|it| text.contains(it)) {
        return true;
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let declared = line.strip_prefix("async ").unwrap_or(line);
        let is_function = declared
            .strip_prefix("fn ")
            .is_some_and(|rest| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')));
        // A test says so right above; a case is a function that the table of cases names.
        let is_test = lines[..at]
            .iter()
            .rev()
            .take(3)
            .any(|above| above.starts_with("#[test") || above.starts_with("#[tokio::test"));
        let is_case = lines.iter().any(|entry| {
            entry.starts_with("case!(") && entry.split([' ', ',', ')']).any(|word| word == name)
        });
        is_function && (is_test || is_case)
    })
}

#[test]
fn every_invariant_and_every_gate_has_tests_that_exist() {
    let page = std::fs::read_to_string(root().join("docs/blueprint.md")).unwrap();
    let rows = rows(&page);
    let invariants = (1..=17).map(|number| format!("I-{number}"));
    let gates = (1..=10).map(|number| format!("G-{number}"));
    let wanted: BTreeSet<String> = invariants.chain(gates).collect();
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    let mut missing = Vec::new();
    for (id, names) in &rows {
        assert!(!names.is_empty(), "{id} names no test");
        for reference in names {
            let found =
                reference.split_once(' ').is_some_and(|(file, name)| has(&root().join(file), name));
            if !found {
                missing.push(format!("{id}: {reference}"));
            }
        }
    }
    assert!(missing.is_empty(), "no such test:\n{}", missing.join("\n"));
}

#[test]
fn what_does_not_exist_is_noticed() {
    let here = root().join("crates/server/tests/it/blueprint.rs");
    assert!(has(&here, "what_does_not_exist_is_noticed"));
    assert!(!has(&here, "what_does_not_exist"));
    assert!(!has(&here, "quoted"), "a function that is no test");
    assert!(!has(&here.join("nowhere"), "what_does_not_exist_is_noticed"));
    let cases = root().join("crates/conformance/src/cases/visibility.rs");
    assert!(has(&cases, "wall_clock_jumps_move_no_deadline"));
    assert!(!has(&cases, "wall_clock_jumps"));
    let rows = rows("| I-1 | text | `a b`<br>`c d` |\n|---|\n| G-2 | | |\n");
    assert_eq!(rows["I-1"], ["a b", "c d"]);
    assert!(rows["G-2"].is_empty());
}

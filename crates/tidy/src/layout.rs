//! Rules about the shape of files and folders: length, names, opening paragraph, manifests.

/// Widest line of Rust code, in columns.
const COLUMNS: usize = 100;
/// Longest source file.
const LINES: usize = 600;
/// Source files longer than this are listed, not refused.
pub const NOTED_LINES: usize = 400;
/// Names that fit everything and so tell nothing.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "helpers", "helper", "common", "misc"];

pub(crate) fn long_lines(path: &str, text: &str) -> Vec<(usize, String)> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    (1..)
        .zip(text.lines())
        .map(|(number, line)| (number, line.chars().count()))
        .filter(|(_, columns)| *columns > COLUMNS)
        .map(|(number, columns)| (number, format!("{columns} columns, at most {COLUMNS}")))
        .collect()
}

pub(crate) fn long_files(path: &str, text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().count();
    if !is_crate_source(path) || lines <= LINES {
        return Vec::new();
    }
    vec![(lines, format!("{lines} lines, at most {LINES}"))]
}

/// The length of a source file that is not too long, but long enough to be looked at.
#[must_use]
pub fn line_count_noted(path: &str, text: &str) -> Option<usize> {
    let lines = text.lines().count();
    (is_crate_source(path) && lines > NOTED_LINES).then_some(lines)
}

pub(crate) fn missing_module_docs(path: &str, text: &str) -> Vec<(usize, String)> {
    if !is_crate_source(path) || text.starts_with("//!") {
        return Vec::new();
    }
    vec![(1, "a source file starts with a `//!` paragraph: what it is, its invariant".to_owned())]
}

pub(crate) fn empty_names(path: &str, text: &str) -> Vec<(usize, String)> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let in_path = path
        .split('/')
        .map(|part| part.trim_end_matches(".rs"))
        .filter(|part| EMPTY_NAMES.contains(part))
        .map(|part| (1, format!("`{part}` in the path")));
    let in_text = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let (_, rest) = line.split_once("mod ").filter(|(before, _)| {
            let before = before.trim();
            before.is_empty() || before.starts_with("pub")
        })?;
        let name = rest.split([' ', ';', '{']).next()?;
        EMPTY_NAMES.contains(&name).then(|| (number, format!("module `{name}`")))
    });
    in_path.chain(in_text).collect()
}

/// The one crate with lints of its own: the workspace forbids what an allocator is made of.
const WITH_UNSAFE_CODE: &str = "crates/allocator/Cargo.toml";

pub(crate) fn missing_workspace_lints(path: &str, text: &str) -> Vec<(usize, String)> {
    let is_package = path.ends_with("/Cargo.toml") && text.contains("[package]");
    if !is_package || path == WITH_UNSAFE_CODE {
        return Vec::new();
    }
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    if lines.next() == Some("workspace = true") {
        return Vec::new();
    }
    vec![(1, "a manifest has `[lints]` followed by `workspace = true`".to_owned())]
}

/// Which of the two licences are not among the files.
#[must_use]
pub fn missing_licences(files: &[(String, String)]) -> Vec<&'static str> {
    let is_missing = |name: &&str| !files.iter().any(|(path, _)| path == name);
    ["LICENSE-MIT", "LICENSE-APACHE"].into_iter().filter(is_missing).collect()
}

/// Rust files in the `src` folder of a package of this workspace.
fn is_crate_source(path: &str) -> bool {
    let mut parts = path.split('/');
    let in_source = match parts.next() {
        Some("crates") => parts.nth(1) == Some("src"),
        Some("bench") => parts.next() == Some("src"),
        _ => false,
    };
    in_source && path.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_101_columns_is_caught_and_one_of_100_is_not() {
        let text = format!("{}\n{}\n", "é".repeat(100), "é".repeat(101));
        assert_eq!(long_lines("a.rs", &text), [(2, "101 columns, at most 100".to_owned())]);
        assert!(long_lines("README.md", &text).is_empty());
    }

    #[test]
    fn a_file_of_601_lines_is_caught_and_one_of_401_is_noted() {
        let path = "crates/core/src/queue/mod.rs";
        assert_eq!(long_files(path, &"\n".repeat(601)).len(), 1);
        assert!(long_files(path, &"\n".repeat(600)).is_empty());
        assert!(long_files("crates/core/tests/it/main.rs", &"\n".repeat(601)).is_empty());
        assert_eq!(line_count_noted(path, &"\n".repeat(401)), Some(401));
        assert_eq!(line_count_noted(path, &"\n".repeat(400)), None);
    }

    #[test]
    fn a_source_file_without_opening_paragraph_is_caught() {
        assert_eq!(missing_module_docs("crates/core/src/a.rs", "use std::fmt;\n").len(), 1);
        assert_eq!(missing_module_docs("bench/src/main.rs", "").len(), 1);
        assert!(missing_module_docs("crates/core/src/a.rs", "//! What.\n").is_empty());
        assert!(missing_module_docs("crates/core/tests/it/a.rs", "use std::fmt;\n").is_empty());
    }

    #[test]
    fn names_that_say_nothing_are_caught_in_paths_and_in_code() {
        assert_eq!(empty_names("crates/core/src/utils.rs", "").len(), 1);
        assert_eq!(empty_names("crates/core/tests/common/mod.rs", "").len(), 1);
        assert_eq!(empty_names("a.rs", "x\npub(crate) mod helpers;\n")[0].0, 2);
        assert_eq!(empty_names("a.rs", "mod misc {\n").len(), 1);
        assert!(empty_names("crates/core/src/utilities_of_time.rs", "mod commons;\n").is_empty());
        assert!(empty_names("a.rs", "// a mod common to all\n").is_empty());
    }

    #[test]
    fn a_manifest_without_workspace_lints_is_caught() {
        let path = "crates/core/Cargo.toml";
        assert_eq!(missing_workspace_lints(path, "[package]\nname = \"a\"\n").len(), 1);
        assert_eq!(missing_workspace_lints(path, "[package]\n[lints]\nrust = 1\n").len(), 1);
        assert!(missing_workspace_lints(path, "[package]\n[lints]\nworkspace = true\n").is_empty());
        assert!(missing_workspace_lints("Cargo.toml", "[workspace]\n").is_empty());
        assert!(missing_workspace_lints(WITH_UNSAFE_CODE, "[package]\n").is_empty());
    }

    #[test]
    fn a_missing_licence_is_caught() {
        let files = [("LICENSE-MIT".to_owned(), String::new())];
        assert_eq!(missing_licences(&files), ["LICENSE-APACHE"]);
    }
}

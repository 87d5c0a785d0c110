//! What the documents say about the code is so.

#[cfg(all(feature = "journal", feature = "directory", feature = "redis", target_os = "linux"))]
mod abilities;

const README: &str = include_str!("../../../../../README.md");
const QUICKSTART: &str = include_str!("../../../examples/quickstart.rs");
const CRATE_DOCS: &str = include_str!("../../../src/lib.rs");

#[test]
fn the_quickstart_of_the_readme_is_the_compiled_example() {
    let (_, block) = README.split_once("```rust\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    // Above the imports the example has what only this repository needs.
    let imports = QUICKSTART.find("use ").unwrap();
    assert_eq!(block, &QUICKSTART[imports..]);
}

#[test]
fn the_readme_names_every_example() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(README.contains(&format!("`{name}`")), "{name}");
    }
}

/// The crate docs open a path of their own; the rest is compiled and run there.
#[test]
fn the_journal_of_the_readme_is_the_example_of_the_crate_docs() {
    let (_, block) = README.split_once("```rust\nuse mailbox::backends::journal").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let block = format!("use mailbox::backends::journal{block}").replace("\"data\"", "&path");
    let lines = block.lines().map(|line| format!("//! {line}").trim_end().to_owned() + "\n");
    let lines: String = lines.collect();
    assert!(CRATE_DOCS.contains(&lines), "not in the crate docs:\n{lines}");
}

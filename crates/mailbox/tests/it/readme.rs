//! What the documents say about the code is so.

#[cfg(feature = "journal")]
use std::sync::Arc;

#[cfg(feature = "journal")]
use mailbox::backends::journal::disk::SimDisk;
#[cfg(feature = "journal")]
use mailbox::backends::journal::{JournalBackend, JournalConfig};
#[cfg(feature = "journal")]
use mailbox::backends::memory::MemoryBackend;
#[cfg(feature = "journal")]
use mailbox::{Abilities, Backend, Mailbox};

const README: &str = include_str!("../../../../README.md");
const QUICKSTART: &str = include_str!("../../examples/quickstart.rs");
const CRATE_DOCS: &str = include_str!("../../src/lib.rs");

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

#[cfg(feature = "journal")]
#[tokio::test]
async fn the_abilities_in_the_crate_docs_are_those_of_the_backends() {
    let memory = MemoryBackend::new().abilities().clone();
    let local = Mailbox::<()>::local("any").unwrap().abilities().clone();
    let config = JournalConfig::default().with_disk(Arc::new(SimDisk::new()));
    let journal = JournalBackend::open_with("readme", config).await.unwrap();
    for row in rows(&[&memory, &local, journal.abilities()]) {
        assert!(CRATE_DOCS.contains(&format!("//! {row}\n")), "not in the crate docs: {row}");
    }
}

#[cfg(feature = "journal")]
fn rows(homes: &[&Abilities]) -> Vec<String> {
    let yes_no = |ability: bool| if ability { "yes" } else { "no" }.to_owned();
    let row = |what: &str, of: &dyn Fn(&Abilities) -> String| {
        let cells: Vec<String> = homes.iter().map(|home| of(home)).collect();
        format!("| {what} | {} |", cells.join(" | "))
    };
    vec![
        row("`durable`", &|it| yes_no(it.durable)),
        row("`ordered`", &|it| yes_no(it.ordered)),
        row("`exact_count`", &|it| yes_no(it.exact_count)),
        row("`idempotency`", &|it| yes_no(it.idempotency)),
        row("`groups`", &|it| yes_no(it.groups)),
        row("`undo`", &|it| yes_no(it.undo)),
        row("`strict_deadlines`", &|it| yes_no(it.strict_deadlines)),
        row("`resolution`", &|it| format!("{} ms", it.resolution.as_millis())),
        row("`max_messages`", &|it| it.max_messages.to_string()),
        row("`max_payload`", &|it| match it.backend {
            "local" => "not measured".to_owned(),
            _ => format!("{} MiB", it.max_payload >> 20),
        }),
        row("`max_delay`", &|it| format!("{} h", it.max_delay.as_secs() / 3_600)),
    ]
}

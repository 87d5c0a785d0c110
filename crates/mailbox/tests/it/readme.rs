//! What the documents say about the code is so.

use mailbox::backends::memory::MemoryBackend;
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

#[test]
fn the_abilities_in_the_crate_docs_are_those_of_the_backends() {
    let memory = MemoryBackend::new().abilities().clone();
    let local = Mailbox::<()>::local("any").unwrap().abilities().clone();
    for row in rows(&memory, &local) {
        assert!(CRATE_DOCS.contains(&format!("//! {row}\n")), "not in the crate docs: {row}");
    }
}

fn rows(memory: &Abilities, local: &Abilities) -> Vec<String> {
    let yes_no = |ability: bool| if ability { "yes" } else { "no" }.to_owned();
    let row = |what: &str, of: &dyn Fn(&Abilities) -> String| {
        format!("| {what} | {} | {} |", of(memory), of(local))
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

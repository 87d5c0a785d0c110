//! What homes can do, as the crate docs have it.

use std::sync::Arc;

use mailbox::backends::directory::DirectoryConfig;
use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::backends::memory::MemoryBackend;
use mailbox::backends::redis::RedisConfig;
use mailbox::{Abilities, Backend, Mailbox};

use super::CRATE_DOCS;

#[tokio::test]
async fn the_abilities_in_the_crate_docs_are_those_of_the_backends() {
    let memory = MemoryBackend::new().abilities().clone();
    let local = Mailbox::<()>::local("any").unwrap().abilities().clone();
    let config = JournalConfig::default().with_disk(Arc::new(SimDisk::new()));
    let journal = JournalBackend::open_with("readme", config).await.unwrap();
    let directory = DirectoryConfig::default().abilities();
    let redis = RedisConfig::default().abilities();
    for row in rows(&[&memory, &local, journal.abilities(), &directory, &redis]) {
        assert!(CRATE_DOCS.contains(&format!("//! {row}\n")), "not in the crate docs: {row}");
    }
}

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
        row("`totals`", &|it| yes_no(it.totals)),
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

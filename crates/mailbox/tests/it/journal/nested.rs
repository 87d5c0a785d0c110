//! Power cuts while a journal recovers from one, three deep: it comes to the same end.

use std::sync::Arc;

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{Backend, Name, Peek, Policy, Totals};

use super::crash_images::{Plan, images_of_a_life};
use super::scale;
use super::workload::{MAILBOXES, Random, Restarts};

/// Images that are recovered from.
const IMAGES: u64 = 1_000;
const DEPTH: usize = 3;

/// All that can be seen of a journal from outside.
#[derive(Debug)]
struct Everything {
    messages: Vec<String>,
    counts: Vec<String>,
    rules: Vec<Policy>,
}

async fn see(backend: &JournalBackend) -> Everything {
    let mut seen = Everything { messages: Vec::new(), counts: Vec::new(), rules: Vec::new() };
    for name in MAILBOXES {
        let name: Name = name.parse().unwrap();
        let dead = Peek::Dead { after: None, limit: 256 };
        for request in [Peek::Live { limit: 256 }, dead] {
            for record in backend.peek(&name, &request).await.unwrap() {
                let hash = blake3::hash(&record.letter.payload);
                seen.messages.push(format!("{record:?} {hash}"));
            }
        }
        // Totals are for people: what happened to a message whose past is forgotten is not counted.
        let mut stats = backend.stats(&name).await.unwrap();
        stats.totals = Totals::default();
        seen.counts.push(format!("{stats:?}"));
        seen.rules.push(backend.policy(&name).await.unwrap());
    }
    seen
}

#[test]
fn recovery_that_is_cut_short_three_times_comes_to_the_same_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut done, mut seed) = (0, 7_000);
    while done < IMAGES * scale() {
        let plan = Plan { restarts: Restarts::Sometimes, before_sync: 1, ..Plan::new(0) };
        let (life, images) = images_of_a_life(&runtime, &plan, seed).unwrap();
        for image in images {
            let config = plan.config.clone().with_clock(life.clock.clock());
            let path = life.path.clone();
            runtime.block_on(async {
                let open = async |disk: &SimDisk| {
                    let config: JournalConfig = config.clone().with_disk(Arc::new(disk.clone()));
                    JournalBackend::open_with(&path, config).await
                };
                let direct = image.disk.fork();
                let backend = open(&direct).await.unwrap();
                let operations = direct.operations();
                let expected = see(&backend).await;
                let mut random = Random::new(image.seed);
                let mut disk = image.disk;
                let mut cuts = Vec::new();
                for _ in 0..DEPTH {
                    let cut = 1 + random.next() % operations;
                    cuts.push(cut);
                    disk.power_cut_at(cut);
                    // Whether this is refused depends on where the cut was.
                    drop(open(&disk).await);
                    disk = disk.crash(random.next());
                }
                let seen = see(&open(&disk).await.unwrap()).await;
                let cut = format!("life {seed}, image {:#x}, cut at {cuts:?}", image.seed);
                assert_eq!(seen.messages.len(), expected.messages.len(), "{cut}");
                for (seen, expected) in seen.messages.iter().zip(&expected.messages) {
                    assert_eq!(seen, expected, "{cut}");
                }
                assert_eq!(seen.counts, expected.counts, "{cut}");
                assert_eq!(seen.rules, expected.rules, "{cut}");
            });
            done += 1;
        }
        seed += 1;
    }
}

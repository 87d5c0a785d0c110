//! How long opening takes with a million messages, against reading the files once: both from a disk
//! whose files nobody has in memory.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use tokio::runtime::Runtime;

use crate::journal::child::Errand;
use crate::journal::ours::Ours;
use crate::journal::place::{Place, files};
use crate::journal::{backlog, median, runtime};
use crate::report::Row;

const ROUNDS: usize = 3;
const READ_LEN: usize = 1024 * 1024;
const AFTER_STOP: f64 = 0.5;
const AFTER_KILL: f64 = 3.0;

/// After a stop in good order, and after a kill.
pub(crate) fn after_stop_and_kill(place: &Place) -> Vec<Row> {
    let runtime = runtime();
    let stopped = after_stop(place, &runtime);
    let killed = after_kill(place, &runtime);
    let row = |how: &str, (opened, read): (f64, f64)| {
        let name = format!("journal opens {} after a {how} : reading its files", backlog());
        Row::compared(name, opened, read).in_unit("ms")
    };
    vec![row("clean stop", stopped).at_most(AFTER_STOP), row("kill", killed).at_most(AFTER_KILL)]
}

fn after_stop(place: &Place, runtime: &Runtime) -> (f64, f64) {
    let folder = place.folder("stopped");
    let journal = folder.path().join("journal");
    Errand::FillAndStop.ask(&journal, backlog());
    let (mut opened, mut read) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // Closing what was opened makes it a clean stop again.
        opened.push(open(place, runtime, &journal));
        read.push(read_once(place, &journal));
    }
    (median(opened), median(read))
}

fn after_kill(place: &Place, runtime: &Runtime) -> (f64, f64) {
    let folder = place.folder("killed");
    let journal = folder.path().join("journal");
    Errand::FillAndWait.kill_when_done(&journal, backlog());
    let (mut opened, mut read) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // It can be opened after the kill only once, so copies are.
        let copies = place.folder(&format!("copy-{round}"));
        let copy = copies.path().join("journal");
        copy_all(&journal, &copy);
        opened.push(open(place, runtime, &copy));
        read.push(read_once(place, &journal));
    }
    (median(opened), median(read))
}

/// In milliseconds, until the first call could be served.
fn open(place: &Place, runtime: &Runtime, journal: &Path) -> f64 {
    place.cool(journal);
    runtime.block_on(async {
        let start = Instant::now();
        let ours = Ours::open(journal).await;
        let millis = start.elapsed().as_secs_f64() * 1e3;
        assert_eq!(ours.live().await, backlog(), "all messages are there");
        ours.close().await;
        millis
    })
}

/// In milliseconds, all files one after the other.
fn read_once(place: &Place, journal: &Path) -> f64 {
    place.cool(journal);
    let mut buffer = vec![0; READ_LEN];
    let start = Instant::now();
    for path in files(journal) {
        let mut file = File::open(path).expect("nobody changes it now");
        while file.read(&mut buffer).expect("it can be read") > 0 {
            black_box(&buffer);
        }
    }
    start.elapsed().as_secs_f64() * 1e3
}

fn copy_all(from: &Path, to: &Path) {
    for path in files(from) {
        let below = path.strip_prefix(from).expect("files are below their folder");
        let target = to.join(below);
        let parent = target.parent().expect("a file is in a folder");
        std::fs::create_dir_all(parent).expect("a folder can be made");
        std::fs::copy(&path, &target).expect("there is room for a copy");
    }
}

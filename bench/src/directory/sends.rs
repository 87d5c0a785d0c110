//! Durable sends: few and many producers, one message each at a time.

use std::time::Duration;

use crate::directory::bare_files::BareFiles;
use crate::directory::ours::Ours;
use crate::journal::load::drive;
use crate::journal::place::Place;
use crate::journal::{median, runtime};
use crate::report::Row;

/// Many and short: what else goes on then hits both.
const ROUNDS: usize = 35;
const ROUND: Duration = Duration::from_millis(140);
const SHARE_OF_BARE: f64 = 0.8;

/// Against the limit. With many producers ours sync their folder once for all who wait, the loops
/// each for themselves.
pub(crate) fn against_bare_files(place: &Place) -> Vec<Row> {
    let folder = place.folder("directory-sends");
    let runtime = runtime();
    let ours = runtime.block_on(Ours::open(&folder.path().join("inboxes")));
    let bare = BareFiles::new(folder.path());
    let race = |producers: usize, rounds: usize| {
        let (mut sent, mut written) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            sent.push(drive(&runtime, &ours, producers, ROUND).per_second);
            runtime.block_on(ours.clear());
            place.rest();
            written.push(bare.drive(producers, ROUND));
            bare.clear();
            place.rest();
        }
        (median(sent), median(written))
    };
    // Folders grow to their size the first time.
    race(16, 1);
    let row = |producers: usize| {
        let (sent, written) = race(producers, ROUNDS);
        let name = format!(
            "directory durable sends, {producers} at a time : write + fsync + rename + fsync"
        );
        Row::compared(name, sent, written).in_unit("/s").at_least(SHARE_OF_BARE)
    };
    let rows = [1, 16].into_iter().map(row).collect();
    runtime.block_on(ours.close());
    rows
}

//! Durable sends: few and many producers, one message each at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::directory::bare_files::{BareFiles, Hopping};
use crate::directory::ours::Ours;
use crate::journal::load::drive;
use crate::journal::place::Place;
use crate::journal::{median, runtime};
use crate::report::Row;

/// Many and short: what else goes on then hits both.
const ROUNDS: usize = 35;
const ROUND: Duration = Duration::from_millis(140);
const SHARE_OF_BARE: f64 = 0.8;

/// Against the limit. Syncs that come together the file system makes one of, for both; whoever
/// comes a moment later waits for the next one, so a hop between threads costs more than it takes.
pub(crate) fn against_bare_files(place: &Place) -> Vec<Row> {
    let folder = place.folder("directory-sends");
    let runtime = runtime();
    let ours = runtime.block_on(Ours::open(&folder.path().join("inboxes")));
    let bare = Arc::new(BareFiles::new(folder.path()));
    let hopping = Hopping::new(&bare);
    let race = |producers: usize, rounds: usize| {
        let (mut sent, mut hopped, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            sent.push(drive(&runtime, &ours, producers, ROUND).per_second);
            runtime.block_on(ours.clear());
            place.rest();
            hopped.push(drive(&runtime, &hopping, producers, ROUND).per_second);
            bare.clear();
            place.rest();
            written.push(bare.drive(producers, ROUND));
            bare.clear();
            place.rest();
        }
        (median(sent), median(hopped), median(written))
    };
    // Folders grow to their size the first time.
    race(16, 1);
    let rows = |producers: usize| {
        let (sent, hopped, written) = race(producers, ROUNDS);
        let name =
            |what: &str| format!("{what}, {producers} at a time : write + fsync + rename + fsync");
        [
            Row::compared(name("directory durable sends"), sent, written)
                .in_unit("/s")
                .at_least(SHARE_OF_BARE),
            Row::compared(name("the same loop called by tasks"), hopped, written).in_unit("/s"),
        ]
    };
    let rows = [1, 16].into_iter().flat_map(rows).collect();
    runtime.block_on(ours.close());
    rows
}

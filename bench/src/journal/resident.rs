//! Memory that a message takes while its payload is on the disk, as the operating system sees it.

use crate::journal::backlog;
use crate::journal::child::Errand;
use crate::journal::place::Place;
use crate::report::Row;

/// At most so many bytes a message.
const BOUND: f64 = 200.0;

/// Growth of a process that sends a million messages, and of one that finds them.
pub(crate) fn bytes_a_message(place: &Place) -> Vec<Row> {
    let folder = place.folder("memory");
    let journal = folder.path().join("journal");
    let count = backlog();
    let row = |errand: Errand, how: &str| {
        let bytes = errand.ask(&journal, count) / count as f64;
        let name = format!("journal resident bytes a message, {count} waiting, {how}");
        Row::alone(name, bytes, "B").at_most(BOUND)
    };
    let sent = row(Errand::ResidentAfterSending, "sent");
    let found = row(Errand::ResidentAfterOpening, "found when opened");
    vec![sent, found]
}

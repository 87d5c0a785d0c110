//! Durable sends: many producers, one message each at a time. Against the bare log the question is
//! what the journal costs, against databases whether it is worth having.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::journal::bare_log::BareLog;
use crate::journal::fjall_peer::Fjall;
use crate::journal::grouped::Grouped;
use crate::journal::load::{Load, drive};
use crate::journal::ours::Ours;
use crate::journal::place::Place;
use crate::journal::sqlite_peer::Sqlite;
use crate::journal::{median, runtime};
use crate::report::Row;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);
/// As much as the bare log has.
const SPARE_SEGMENTS: u32 = 24;
const SHARE_OF_BARE: f64 = 0.7;
const TIMES_A_DATABASE: f64 = 1.5;

/// Against the limit, with few and with many producers.
pub(crate) fn against_bare_log(place: &Place) -> Vec<Row> {
    let folder = place.folder("sends");
    let runtime = runtime();
    let journal = folder.path().join("journal");
    let ours = runtime.block_on(Ours::open_with_spares(&journal, SPARE_SEGMENTS));
    let bare = Grouped::start(BareLog::new(folder.path()));
    let mut race = Race { place, runtime, ours, peers: vec![("bare log", bare)] };
    race.run(64, 1);

    let mut rows = Vec::new();
    let mut costs = Vec::new();
    for producers in [1, 16, 64, 256] {
        let loads = race.run(producers, ROUNDS);
        rows.extend(race.rates(producers, &loads).map(|row| row.at_least(SHARE_OF_BARE)));
        if producers >= 64 {
            costs.extend(race.costs(producers, &loads));
        }
    }
    rows.extend(costs);
    race.end();
    rows
}

/// Against databases; with few producers all of them wait for the disk alone.
pub(crate) fn against_databases(place: &Place) -> Vec<Row> {
    let folder = place.folder("sends");
    let runtime = runtime();
    let journal = folder.path().join("journal");
    let ours = runtime.block_on(Ours::open_with_spares(&journal, SPARE_SEGMENTS));
    let sqlite = Grouped::start(Sqlite::new(folder.path()));
    let fjall = Grouped::start(Fjall::new(folder.path()));
    let peers = vec![("SQLite, WAL, synchronous = FULL", sqlite), ("fjall, SyncData", fjall)];
    let mut race = Race { place, runtime, ours, peers };
    race.run(64, 1);

    let mut rows = Vec::new();
    for producers in [64, 256] {
        let loads = race.run(producers, ROUNDS);
        rows.extend(race.rates(producers, &loads).map(|row| row.at_least(TIMES_A_DATABASE)));
    }
    race.end();
    rows
}

/// Ours and some peers, who take turns.
struct Race<'a> {
    place: &'a Place,
    runtime: Runtime,
    ours: Arc<Ours>,
    peers: Vec<(&'static str, Arc<Grouped>)>,
}

impl Race<'_> {
    /// Everybody's rounds; ours are first, then the peers' in their order. Whoever grows to its
    /// size the first time needs a round before this.
    fn run(&mut self, producers: usize, rounds: usize) -> Vec<Vec<Load>> {
        let mut loads = vec![Vec::new(); self.peers.len() + 1];
        for _ in 0..rounds {
            loads[0].push(drive(&self.runtime, &self.ours, producers, ROUND));
            self.runtime.block_on(self.ours.clear());
            self.place.rest();
            for ((_, peer), loads) in self.peers.iter().zip(&mut loads[1..]) {
                loads.push(drive(&self.runtime, peer, producers, ROUND));
                peer.clear();
                self.place.rest();
            }
        }
        loads
    }

    fn rates(&self, producers: usize, loads: &[Vec<Load>]) -> impl Iterator<Item = Row> {
        let rate = |load: &Load| load.per_second;
        let ours = middle(&loads[0], rate);
        self.peers.iter().zip(&loads[1..]).map(move |((name, _), loads)| {
            let name = format!("journal durable sends, {producers} at a time : {name}");
            Row::compared(name, ours, middle(loads, rate)).in_unit("/s")
        })
    }

    /// What a send takes of the processor and of its producer's time.
    fn costs(&self, producers: usize, loads: &[Vec<Load>]) -> [Row; 2] {
        let row = |name: &str, figure: fn(&Load) -> f64| {
            let name = format!("  {name} of a send, {producers} at a time : {}", self.peers[0].0);
            let (ours, peer) = (middle(&loads[0], figure), middle(&loads[1], figure));
            Row::compared(name, ours, peer).in_unit("us")
        };
        [row("processor time", |load| load.cpu_micros), row("p99", |load| load.p99_micros)]
    }

    fn end(self) {
        self.runtime.block_on(self.ours.close());
    }
}

fn middle(loads: &[Load], figure: impl Fn(&Load) -> f64) -> f64 {
    median(loads.iter().map(figure).collect())
}

//! Random damage. What must hold is worked out from the log as it was before: which bytes are of
//! which record.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mailbox_core::DeadReason;

use super::scenes::{AT, Chance, Seen, config, journal, see_all, shared};
use crate::backends::journal::disk::SimDisk;
use crate::backends::journal::doctor::{Report, SegmentState, examine, repair};
use crate::backends::journal::format::Place;
use crate::backends::journal::format::event::{decode_event, decode_kept, key_of};
use crate::backends::journal::format::letter::LetterParts;
use crate::backends::journal::format::record::Kind;
use crate::backends::journal::format::segment::SegmentHeader;
use crate::backends::journal::scan::{Expect, Scan};
use crate::id::MessageId;
use crate::testing::ManualClock;
use mailbox_core::Event;

/// A record of the journal before it was damaged.
#[derive(Debug, Clone)]
struct Known {
    file: PathBuf,
    /// Start, end of header and fact, end of the letter.
    at: (u64, u64, u64),
    kind: Kind,
    message: Option<(u32, u64, u32)>,
    id: Option<MessageId>,
}

/// Bytes that were changed.
#[derive(Debug)]
struct Damage {
    file: PathBuf,
    from: u64,
    to: u64,
}

impl Damage {
    fn hits(&self, known: &Known, from: u64, to: u64) -> bool {
        self.file == known.file && self.from < to && from < self.to
    }
}

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    let files = disk.files().into_iter();
    files.filter(|file| file.extension().is_some_and(|it| it == "segment")).collect()
}

/// Every record there is.
fn records(disk: &SimDisk) -> Vec<Known> {
    let mut all = Vec::new();
    for file in segments(disk) {
        let bytes = disk.read_file(&file);
        let header = SegmentHeader::decode(&bytes).unwrap();
        for (offset, record) in Scan::new(&bytes, &header, Expect::default()) {
            let place = Place { segment: 1, offset, len: 0 };
            let letter = LetterParts::parse(record.letter).ok();
            let id = match (record.kind, &letter) {
                (Kind::Kept, Some(letter)) => {
                    Some(decode_kept(record.fact, letter, place).unwrap().0.id)
                }
                (Kind::Sent, letter) => {
                    match decode_event(record.kind, record.fact, letter.as_ref(), place).unwrap() {
                        (_, Event::Sent { id, .. }) => Some(id),
                        _ => None,
                    }
                }
                _ => None,
            };
            let start = u64::from(offset);
            let fact_end = start + 40 + record.fact.len() as u64;
            let key = key_of(record.kind, record.fact).ok();
            all.push(Known {
                file: file.clone(),
                at: (start, fact_end, fact_end + record.letter.len() as u64),
                kind: record.kind,
                message: key.map(|(seq, slot)| (record.mailbox, seq, slot)),
                id: id.map(Into::into),
            });
        }
    }
    all
}

/// Changes something, and says what.
fn damage(disk: &SimDisk, chance: &mut Chance) -> Damage {
    let files = segments(disk);
    let file = files[usize::try_from(chance.below(files.len() as u64)).unwrap()].clone();
    let mut bytes = disk.read_file(&file);
    let len = bytes.len() as u64;
    // Most of it where something is.
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(64) as u64 + 1;
    let at = if chance.below(12) == 0 { chance.below(64) } else { chance.below(used) };
    let (from, to) = match chance.below(8) {
        0..4 => {
            disk.flip_bit(&file, at * 8 + chance.below(8));
            (at, at + 1)
        }
        4..6 => {
            let from = at / 512 * 512;
            let to = (from + 512 * (1 + chance.below(8))).min(len);
            bytes[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()].fill(0);
            disk.write_file(&file, &bytes);
            (from, to)
        }
        6 => {
            let to = (at + 1 + chance.below(300)).min(len);
            for byte in &mut bytes[usize::try_from(at).unwrap()..usize::try_from(to).unwrap()] {
                *byte = u8::try_from(chance.below(256)).unwrap();
            }
            disk.write_file(&file, &bytes);
            (at, to)
        }
        _ => {
            disk.truncate(&file, at);
            (at, u64::MAX)
        }
    };
    Damage { file, from, to }
}

struct Case<'a> {
    records: &'a [Known],
    truth: &'a [Seen],
    damages: Vec<Damage>,
    report: Report,
    seen: Vec<Seen>,
    label: String,
}

impl Case<'_> {
    /// Behind this place in a file nobody was told that anything is kept.
    fn is_cut_off(&self, known: &Known) -> bool {
        self.report.shards.iter().flat_map(|shard| &shard.segments).any(|segment| {
            let is_it = known.file.ends_with(&segment.file);
            let torn_at = self.report.remarks.iter().find(|it| it.file == segment.file);
            is_it
                && segment.state == SegmentState::Torn
                && torn_at.is_some_and(|it| it.offset <= Some(known.at.0))
        })
    }

    fn is_whole(&self, known: &Known) -> bool {
        let hit = |damage: &Damage| damage.hits(known, known.at.0, known.at.2);
        !self.damages.iter().any(hit) && !self.is_cut_off(known)
    }

    fn is_readable_without_letter(&self, known: &Known) -> bool {
        let hit = |damage: &Damage| damage.hits(known, known.at.0, known.at.1);
        // Of a letter that ends before it should, nobody can tell where it ended.
        let cut =
            |damage: &Damage| damage.to == u64::MAX && damage.hits(known, known.at.0, u64::MAX);
        !self.damages.iter().any(|it| hit(it) || cut(it)) && !self.is_cut_off(known)
    }

    fn check(&self, index_knows_all: bool) {
        let by_id: BTreeMap<&MessageId, &Seen> =
            self.seen.iter().map(|seen| (&seen.id, seen)).collect();
        let label = &self.label;
        let mut last_places = BTreeMap::new();
        for known in self.records.iter().filter(|known| known.id.is_some()) {
            last_places.insert(known.id.clone().unwrap(), known);
        }
        for truth in self.truth {
            let place = last_places[&truth.id];
            let found = by_id.get(&truth.id);
            if self.is_whole(place) {
                let found = found.unwrap_or_else(|| panic!("{label}: {truth:?} is gone"));
                assert_eq!(found.payload, truth.payload, "{label}");
                if index_knows_all {
                    assert_eq!(**found, *truth, "{label}");
                }
            } else if self.is_readable_without_letter(place) || index_knows_all {
                let found = found.unwrap_or_else(|| panic!("{label}: {truth:?} is forgotten"));
                let is_copy = found.payload == truth.payload && !truth.payload.is_empty();
                assert!(is_copy || found.reason == Some(DeadReason::Integrity), "{label}");
            }
            if let Some(found) = found.filter(|it| it.reason == Some(DeadReason::Integrity)) {
                let error = found.last_error.as_deref().unwrap_or_default();
                assert!(error.contains("offset"), "{label}: {error}");
                assert!(found.payload.is_empty(), "{label}");
            }
        }
        self.check_acknowledged(&by_id);
    }

    fn check_acknowledged(&self, by_id: &BTreeMap<&MessageId, &Seen>) {
        let mut ids = BTreeMap::new();
        for known in self.records {
            if let (Some(message), Some(id)) = (known.message, &known.id) {
                ids.insert((self.shard_of(known), message), id);
            }
        }
        for ack in self.records.iter().filter(|known| known.kind == Kind::Acknowledged) {
            let id = ack.message.and_then(|message| ids.get(&(self.shard_of(ack), message)));
            if let Some(id) = id.filter(|_| self.is_whole(ack)) {
                let back = by_id.get(id);
                assert!(back.is_none(), "{}: {back:?} was acknowledged", self.label);
            }
        }
    }

    fn shard_of(&self, known: &Known) -> PathBuf {
        known.file.parent().unwrap().to_owned()
    }
}

/// A journal before it was damaged.
struct Base {
    disk: SimDisk,
    clock: ManualClock,
    closed: bool,
    all: Vec<Known>,
    truth: Vec<Seen>,
}

/// Whether the version of a file and something else of its header are damaged.
fn is_version_and_more(damages: &[Damage]) -> bool {
    damages.iter().filter(|it| it.from <= 11 && 8 < it.to).any(|version| {
        let same = damages.iter().filter(|it| it.file == version.file && it.from < 76);
        same.map(|it| it.to.min(76) - it.from).sum::<u64>() > 1
    })
}

/// Damages a copy in up to three places, examines and repairs it, and checks what is left.
async fn run(base: &Base, label: String, seed: u64) -> bool {
    let Base { disk, clock, closed, all, truth } = base;
    let mut chance = Chance(seed);
    let copy = disk.fork();
    let damages: Vec<_> = (0..1 + chance.below(3)).map(|_| damage(&copy, &mut chance)).collect();
    let label = format!("{label}, {damages:?}");
    let report = match examine(AT, &shared(&copy)) {
        // Where version and checksum are both damaged nobody can tell it from a later version.
        Err(error) if is_version_and_more(&damages) => {
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported, "{label}");
            return false;
        }
        report => report.unwrap_or_else(|error| panic!("{label}: {error}")),
    };
    let opened = see_all(AT, config(&copy.fork(), clock)).await;
    if let Err(error) = &opened {
        assert!(!report.sound, "{label}: the library says {error:?}, the doctor {report:?}");
        // A flipped bit of the version looks like another version.
        let kinds = [crate::ErrorKind::Integrity, crate::ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{label}: {error:?}");
    }
    if report.sound {
        return false;
    }
    let before: Vec<_> = copy.files().iter().map(|file| copy.read_file(file)).collect();
    let repaired = repair(AT, Some("/data/new".as_ref()), &shared(&copy))
        .unwrap_or_else(|error| panic!("{label}: {error:?}"));
    let after: Vec<_> = copy
        .files()
        .iter()
        .filter(|file| file.starts_with(AT))
        .map(|file| copy.read_file(file))
        .collect();
    assert!(before == after, "{label}: the damaged journal was changed");
    let again = examine("/data/new", &shared(&copy)).unwrap();
    assert!(again.sound, "{label}: {:?}", again.problems);
    let seen = see_all("/data/new", config(&copy, clock))
        .await
        .unwrap_or_else(|error| panic!("{label}: {error:?}"));
    let integrity = seen.iter().filter(|it| it.reason == Some(DeadReason::Integrity)).count();
    assert_eq!(repaired.unreadable, integrity as u64, "{label}");
    assert_eq!(repaired.messages + repaired.unreadable, seen.len() as u64, "{label}");
    let index_knows_all = *closed
        && report.lost_records != Some(0)
        && report.shards.iter().all(|shard| shard.closed)
        && report.remarks.iter().filter(|it| it.what.contains("taken from it")).count() == 2;
    let case = Case { records: all, truth, damages, report, seen, label };
    case.check(index_knows_all);
    true
}

#[tokio::test]
async fn whatever_is_damaged_everything_else_is_saved() {
    let mut damaged = 0;
    for number in 0..8_u64 {
        let closed = number % 2 == 0;
        let (disk, clock) = journal(number, closed).await;
        let all = records(&disk);
        let truth = see_all(AT, config(&disk.fork(), &clock)).await.unwrap();
        let base = Base { disk, clock, closed, all, truth };
        for seed in 0..45 {
            let label = format!("journal {number}, damage {seed}");
            let seed = number * 1_000 + seed;
            damaged += u32::from(run(&base, label, seed).await);
        }
    }
    assert!(damaged > 220, "only {damaged} of 360 were damaged");
}

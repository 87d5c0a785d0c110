//! Segments that end in every way, and what is said about them.

use super::*;
use crate::backends::journal::format::fact::Sealed;
use crate::backends::journal::format::letter::encode_letter;
use crate::backends::journal::format::record::{Kind, RecordHead, append, mark_last};
use crate::backends::journal::format::segment::{DATA_START, SegmentHeader};
use crate::backends::journal::scan::{End, Expect, Scan};

const SALT: u32 = 0x5EED_5A17;
const LEN: u32 = 32 * 1024;

/// A segment that is written batch by batch. Its first record is number 11, its first batch 6.
struct Segment {
    header: SegmentHeader,
    bytes: Vec<u8>,
    /// Where each record is, and its batch.
    records: Vec<(usize, u64)>,
    /// Behind the last record.
    end: usize,
}

impl Segment {
    /// Made of fresh space.
    fn new() -> Self {
        Self::over(vec![0; LEN as usize])
    }

    /// Made of a file that was used before.
    fn over(mut bytes: Vec<u8>) -> Self {
        let (journal, len) = (journal_id(), LEN);
        let header = SegmentHeader { journal, shard: 0, number: 3, salt: SALT, len, created_ms: 1 };
        bytes[..64].copy_from_slice(&header.encode());
        Self { header, bytes, records: Vec::new(), end: DATA_START as usize }
    }

    fn put(&mut self, records: &[u8]) {
        self.bytes[self.end..self.end + records.len()].copy_from_slice(records);
        self.end += records.len();
    }

    fn next_head(&self, batch: u64) -> RecordHead {
        let lsn = 11 + self.records.len() as u64;
        RecordHead { salt: self.header.salt, batch, lsn, mailbox: 1 }
    }

    /// Appends a record, not the last of its batch, and returns where it is.
    fn record(&mut self, batch: u64, kind: Kind, fact: &[u8], payload_len: usize) -> usize {
        let payload = vec![b'p'; payload_len].into();
        let letter = encode_letter(&Letter { payload, ..letter() }, &hash());
        let mut record = Vec::new();
        let letter = (payload_len > 0).then_some(&letter);
        append(&mut record, self.next_head(batch), kind, fact, letter);
        let at = self.end;
        self.records.push((at, batch));
        self.put(&record);
        at
    }

    /// Appends a batch of messages with payloads of these lengths (0: no letter at all).
    fn batch(&mut self, batch: u64, payloads: &[usize]) {
        for payload in payloads {
            self.record(batch, Kind::Sent, &[9; 60], *payload);
        }
        self.mark_last();
    }

    fn mark_last(&mut self) {
        let (at, _) = *self.records.last().unwrap();
        mark_last(&mut self.bytes[at..]);
    }

    /// Three batches: 6, 7 and 8.
    fn of_three_batches() -> Self {
        let mut segment = Self::new();
        segment.batch(6, &[100, 0]);
        segment.batch(7, &[0, 200, 30]);
        segment.batch(8, &[300, 0, 900, 50]);
        segment
    }

    fn scan(&self) -> Scan<'_> {
        Scan::new(&self.bytes, &self.header, Expect { lsn: Some(11), batch_above: 5 })
    }

    fn end(&self) -> End {
        self.scan().end()
    }

    fn clean(&self) -> End {
        End::Clean { offset: self.end as u32 }
    }

    fn offset(&self, record: usize) -> u32 {
        self.records[record].0 as u32
    }
}

#[test]
fn whole_batches_and_nothing_behind_them_are_a_clean_end() {
    let segment = Segment::of_three_batches();
    let mut scan = segment.scan();
    assert_eq!((scan.last_lsn(), scan.last_batch(), scan.records()), (10, 5, 0));
    let read: Vec<(usize, u64)> =
        scan.by_ref().map(|(offset, record)| (offset as usize, record.batch)).collect();
    assert_eq!(read, segment.records);
    assert_eq!((scan.last_lsn(), scan.last_batch(), scan.records()), (19, 8, 9));
    assert!(scan.is_batch_complete() && !scan.is_short());
    assert_eq!(scan.last_offset(), Some(segment.offset(8)));
    assert_eq!(scan.offset() as usize, segment.end);
    assert_eq!(scan.end(), segment.clean());
    assert_eq!(Segment::new().end(), End::Clean { offset: 4096 });
}

#[test]
fn a_batch_that_was_torn_in_any_place_is_cut_off_and_never_damage() {
    let segment = Segment::of_three_batches();
    let start = segment.records[5].0;
    for cut in start..segment.end {
        let mut torn = Segment::of_three_batches();
        torn.bytes[cut..].fill(0);
        let whole = segment.records[5..].iter().filter(|(at, _)| *at < cut).count();
        let mut scan = torn.scan();
        let read = scan.by_ref().count();
        // The record with the cut in it may be whole nevertheless: its last bytes may be zeros.
        assert!(read == 5 + whole || read + 1 == 5 + whole, "cut at {cut}: {read} records");
        let offset = scan.offset();
        match scan.end() {
            End::Clean { offset: end } => assert_eq!(end, offset, "cut at {cut}"),
            End::Torn { offset: end, until } => {
                assert_eq!(end, offset, "cut at {cut}");
                assert!(until > end && until as usize <= segment.end, "cut at {cut}");
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

#[test]
fn a_batch_of_which_any_sectors_are_missing_is_cut_off_and_never_damage() {
    let segment = Segment::of_three_batches();
    let (start, sector) = (segment.records[5].0, 512);
    let sectors: Vec<usize> =
        (start / sector..=(segment.end - 1) / sector).map(|index| index * sector).collect();
    assert!((4..12).contains(&sectors.len()));
    for missing in 1..1_u32 << sectors.len() {
        let mut torn = Segment::of_three_batches();
        for (index, at) in sectors.iter().enumerate() {
            if missing & 1 << index != 0 {
                // The first sector has bytes of the batch before in it, which are on the disk.
                torn.bytes[(*at).max(start)..at + sector].fill(0);
            }
        }
        let mut scan = torn.scan();
        assert!(scan.by_ref().count() >= 5, "{missing:b}");
        let end = scan.end();
        assert!(!matches!(end, End::Damaged { .. } | End::Sealed { .. }), "{missing:b}: {end:?}");
    }
}

#[test]
fn remains_of_the_torn_batch_behind_a_gap_are_not_damage() {
    let mut segment = Segment::of_three_batches();
    let (gap, behind) = (segment.records[5].0, segment.records[6].0);
    segment.bytes[gap..behind].fill(0);
    let until = segment.end as u32;
    assert_eq!(segment.end(), End::Torn { offset: gap as u32, until });
}

#[test]
fn a_changed_bit_in_an_earlier_batch_is_damage_wherever_it_is() {
    let segment = Segment::of_three_batches();
    for (index, (at, _)) in segment.records[..5].iter().enumerate() {
        let next = segment.records[index + 1].0;
        let mut damaged = Segment::of_three_batches();
        let (_, record) = damaged.scan().nth(index).unwrap();
        let len = 40 + record.fact.len() + record.letter.len();
        for bit in 0..len * 8 {
            damaged.bytes[at + bit / 8] ^= 1 << (bit % 8);
            let End::Damaged { offset, lost_lsn, found, flaw } = damaged.end() else {
                panic!("bit {bit} of record {index} was not noticed: {:?}", damaged.end())
            };
            assert_eq!((offset as usize, lost_lsn), (*at, 11 + index as u64));
            assert!(found as usize >= next);
            assert!(matches!(flaw, Flaw::Checksum | Flaw::Salt | Flaw::Length), "{flaw:?}");
            damaged.bytes[at + bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn the_head_of_a_later_record_is_enough_to_know_that_what_is_missing_was_there() {
    let mut segment = Segment::new();
    segment.batch(6, &[100]);
    segment.batch(7, &[500]);
    let (damaged, later) = (segment.records[0].0, segment.records[1].0);
    segment.bytes[damaged + 60] ^= 1;
    // The later batch was being written, and its letter is not there.
    segment.bytes[later + 200..].fill(0);
    assert_eq!(
        segment.end(),
        End::Damaged {
            offset: damaged as u32,
            lost_lsn: 11,
            found: later as u32,
            flaw: Flaw::Checksum
        }
    );
}

#[test]
fn a_log_that_goes_on_behind_a_torn_batch_can_be_torn_again_if_that_one_was_closed() {
    let mut segment = Segment::new();
    segment.batch(6, &[100]);
    let kept = segment.record(7, Kind::Sent, &[9; 60], 50);
    let mut scan = segment.scan();
    assert_eq!(scan.by_ref().count(), 2);
    assert!(!scan.is_batch_complete());
    let last = scan.last_offset().unwrap() as usize;
    assert_eq!(last, kept);
    // What a recovery has to do before it goes on with the next batch.
    mark_last(&mut segment.bytes[last..]);
    segment.batch(8, &[70, 80]);
    assert_eq!(segment.end(), segment.clean());
    let (gap, behind) = (segment.records[2].0, segment.records[3].0);
    segment.bytes[gap..behind].fill(0);
    let until = segment.end as u32;
    assert_eq!(segment.end(), End::Torn { offset: gap as u32, until });
}

#[test]
fn records_from_before_the_file_was_used_again_are_nothing() {
    let mut old = Segment::new();
    old.header.salt = SALT + 1;
    while old.end + 2000 < LEN as usize {
        old.batch(900 + old.records.len() as u64, &[400, 0]);
    }
    let mut segment = Segment::over(old.bytes);
    assert_eq!(segment.end(), End::Clean { offset: 4096 });
    segment.batch(6, &[100, 0]);
    segment.batch(7, &[77]);
    assert_eq!(segment.scan().count(), 3);
    assert_eq!(segment.end(), segment.clean());
}

#[test]
fn a_letter_that_looks_like_a_later_record_is_not_taken_for_one() {
    let mut segment = Segment::new();
    segment.batch(6, &[100]);
    let mut forged = Vec::new();
    let head = RecordHead { salt: SALT, batch: 99, lsn: 99, mailbox: 1 };
    append(&mut forged, head, Kind::Closed, &[], None);
    let at = segment.record(7, Kind::Sent, &[9; 60], 600);
    segment.mark_last();
    let inside = (at + 300).next_multiple_of(8);
    segment.bytes[inside..inside + forged.len()].copy_from_slice(&forged);
    let until = segment.end as u32;
    assert_eq!(segment.end(), End::Torn { offset: at as u32, until });
}

/// Three batches and a seal that claims this many records.
fn sealed(records: u64) -> Segment {
    let mut segment = Segment::of_three_batches();
    segment.record(9, Kind::Sealed, &records.to_le_bytes(), 0);
    segment.mark_last();
    segment
}

#[test]
fn a_seal_ends_a_segment_whatever_is_behind_it() {
    let mut segment = sealed(10);
    let offset = segment.end as u32;
    segment.batch(10, &[0]);
    let mut scan = segment.scan();
    assert_eq!(scan.by_ref().count(), 10);
    assert_eq!(scan.end(), End::Sealed { offset });
    assert_eq!(segment.scan().strict().end(), End::Sealed { offset });
}

#[test]
fn a_seal_that_counts_other_records_is_damage() {
    let segment = sealed(9);
    let offset = segment.offset(9);
    let flaw = Flaw::Field("count of records");
    let expected = End::Damaged { offset, lost_lsn: 20, found: offset, flaw };
    assert_eq!(segment.end(), expected);
    assert!(Sealed::decode(&9_u64.to_le_bytes()).is_ok());
}

#[test]
fn a_segment_that_must_be_sealed_and_is_not_is_damaged() {
    let mut segment = Segment::of_three_batches();
    let offset = segment.end as u32;
    let expected = End::Damaged { offset, lost_lsn: 20, found: 0, flaw: Flaw::Unsealed };
    assert_eq!(segment.scan().strict().end(), expected);

    let (gap, behind) = (segment.records[5].0, segment.records[6].0);
    segment.bytes[gap + 50] ^= 1;
    let (offset, found) = (gap as u32, behind as u32);
    let End::Damaged { offset: at, lost_lsn, flaw, .. } = segment.scan().strict().end() else {
        panic!("a torn batch cannot be in a segment that another follows")
    };
    assert_eq!((at, lost_lsn, flaw), (offset, 16, Flaw::Checksum));
    segment.bytes[gap..behind].fill(0);
    let flaw = Flaw::Salt;
    let expected = End::Damaged { offset, lost_lsn: 16, found, flaw };
    assert_eq!(segment.scan().strict().end(), expected);
}

#[test]
fn nothing_is_damage_in_a_log_that_was_not_synced() {
    let mut segment = Segment::of_three_batches();
    let at = segment.records[2].0;
    segment.bytes[at + 50] ^= 1;
    assert!(matches!(segment.end(), End::Damaged { .. }));
    let until = segment.end as u32;
    assert_eq!(segment.scan().lenient().end(), End::Torn { offset: at as u32, until });
}

#[test]
fn a_record_that_does_not_follow_the_one_before_is_the_end() {
    let segment = Segment::of_three_batches();
    let start = Segment::new().end as u32;
    let refused = |lsn, batch_above| {
        let mut scan = Scan::new(&segment.bytes, &segment.header, Expect { lsn, batch_above });
        assert!(scan.next().is_none());
        scan.end()
    };
    let found = segment.offset(2);
    let damaged = End::Damaged { offset: start, lost_lsn: 12, found, flaw: Flaw::Order };
    assert_eq!(refused(Some(12), 5), damaged);
    assert!(matches!(refused(None, 6), End::Damaged { lost_lsn: 0, .. }), "8 is above 7");
    let until = segment.end as u32;
    assert_eq!(refused(Some(11), 8), End::Torn { offset: start, until });

    // A number is left out, in the next batch and in one behind it; and a batch comes back.
    let gap = |batch| {
        let mut segment = Segment::of_three_batches();
        segment.records.push((0, batch));
        segment.batch(batch, &[0]);
        segment.end()
    };
    assert!(matches!(gap(9), End::Torn { .. }));
    assert!(matches!(gap(10), End::Damaged { lost_lsn: 20, flaw: Flaw::Order, .. }));
    let mut back = Segment::of_three_batches();
    let offset = back.end as u32;
    back.batch(7, &[0]);
    assert_eq!(back.end(), End::Torn { offset, until: back.end as u32 });
}

#[test]
fn a_whole_record_of_an_unknown_kind_is_damage_and_not_torn() {
    let mut segment = Segment::of_three_batches();
    let at = segment.record(9, Kind::Closed, &[], 0);
    segment.bytes[at + 28] = 99;
    segment.mark_last();
    let offset = at as u32;
    let flaw = Flaw::Kind(99);
    assert_eq!(segment.end(), End::Damaged { offset, lost_lsn: 20, found: 0, flaw });
}

#[test]
fn bytes_that_are_missing_at_the_end_of_a_file_are_absent() {
    let segment = Segment::of_three_batches();
    let expect = Expect { lsn: None, batch_above: 0 };
    for len in 0..=segment.end {
        let scan = Scan::new(&segment.bytes[..len], &segment.header, expect);
        assert!(scan.is_short());
        let end = scan.end();
        assert!(matches!(end, End::Clean { .. } | End::Torn { .. }), "{len} bytes: {end:?}");
    }
    // What is behind the length in the header does not belong to the segment.
    let header = SegmentHeader { len: segment.offset(5), ..segment.header.clone() };
    let scan = Scan::new(&segment.bytes, &header, expect);
    assert!(!scan.is_short());
    assert_eq!(scan.count(), 5);
}

#[test]
fn without_checksums_damage_is_read_as_if_it_were_right() {
    let mut segment = Segment::of_three_batches();
    let at = segment.records[3].0;
    segment.bytes[at + 150] ^= 1;
    assert_eq!(segment.scan().count(), 3);
    assert_eq!(segment.scan().unchecked().count(), 9);
}

proptest! {
    #[test]
    fn random_bytes_in_place_of_the_last_batch_never_make_it_panic_or_damage(
        noise in proptest::collection::vec(any::<u8>(), 1..2000),
        salts in proptest::collection::vec(0..250_usize, 0..5),
    ) {
        let mut segment = Segment::of_three_batches();
        let at = segment.records[5].0;
        segment.bytes[at..segment.end].fill(0);
        segment.bytes[at..at + noise.len()].copy_from_slice(&noise);
        for place in salts {
            segment.bytes[at + place * 8..][..4].copy_from_slice(&SALT.to_le_bytes());
        }
        let is_damaged = matches!(segment.end(), End::Damaged { .. });
        prop_assert!(!is_damaged);
        prop_assert_eq!(segment.scan().count(), 5);
    }
}

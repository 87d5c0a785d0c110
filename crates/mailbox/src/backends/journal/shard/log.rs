//! What waits to be written: batches, in the order in which they go to the disk. Invariant: a
//! record has its final bytes and its final place from the moment it is appended; what is appended
//! while a batch is being written goes into the next one, and no batch spans two segments.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::Notify;

use crate::backends::journal::format::Place;
use crate::backends::journal::format::letter::EncodedLetter;
use crate::backends::journal::format::record::{
    self, Kind, RECORD_HEADER, RecordHead, padded, record_len,
};
use crate::backends::journal::format::segment::DATA_START;
use crate::backends::journal::shard::segment::Segment;
use crate::error::{Error, Result};

/// A batch is closed at this size, so that one sync never waits for too much.
const BATCH_BYTES: usize = 1 << 20;
/// Letters from this size on are written from where they are, not copied under the lock.
const LARGE_LETTER: usize = 32 << 10;
/// What the seal of a segment takes: a header and one number.
pub(crate) const SEAL_LEN: u32 = padded(RECORD_HEADER + 8) as u32;

/// What every segment keeps back for records about the log itself, so that a journal can be closed
/// and opened, and old segments given up, when the disk is full.
const OWN_LEN: usize = 4 << 10;

/// The longest record that fits into a segment that has only its head.
pub(crate) const fn largest_record(segment_len: u32) -> usize {
    (segment_len as usize).saturating_sub(DATA_START as usize + SEAL_LEN as usize + OWN_LEN + 256)
}

/// What is being filled, and what waits.
#[derive(Debug)]
pub(crate) struct Log {
    /// To be written, oldest first; the last one may still grow.
    batches: VecDeque<Batch>,
    /// The batch that is being written at this moment.
    writing: Option<(u64, Arc<Commit>)>,
    pub(crate) segment: Arc<Segment>,
    /// Where the next record goes.
    pub(crate) offset: u32,
    pub(crate) records_in_segment: u64,
    pub(crate) next_lsn: u64,
    next_batch: u64,
    /// Made ahead, in the order of their numbers.
    pub(crate) spares: VecDeque<Arc<Segment>>,
    /// Bytes that wait to be written.
    pub(crate) waiting: usize,
    /// Records among them that somebody waits for.
    pub(crate) awaited: u32,
    /// Somebody waits for what was appended.
    pub(crate) urgent: bool,
    /// Why nothing more can be written, ever.
    pub(crate) failed: Option<Error>,
    /// Why no spare could be made; sends are refused until one can.
    pub(crate) full: Option<String>,
    /// Nor is there enough to take any back with.
    pub(crate) stuck: bool,
    pub(crate) stop: bool,
}

/// Records that go to the disk together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: u64,
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u32,
    pub(crate) end: u32,
    pub(crate) parts: Vec<Part>,
    /// Where the last record starts: which part, where in it.
    last_record: (usize, usize),
    pub(crate) commit: Arc<Commit>,
    /// It closes its segment.
    pub(crate) seals: bool,
    /// Records that somebody waited for when it was taken; those of later batches count too.
    pub(crate) awaited: u32,
}

/// Bytes that follow each other in a batch.
#[derive(Debug)]
pub(crate) enum Part {
    /// Records, one after the other.
    Records(Vec<u8>),
    /// A large letter with its padding.
    Letter(Arc<EncodedLetter>, usize),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Records(bytes) => bytes.len(),
            Self::Letter(letter, padding) => letter.bytes.len() + padding,
        }
    }
}

/// What those wait for whose records are in a batch.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    outcome: OnceLock<Result<()>>,
    done: Notify,
}

impl Commit {
    /// Ends when the batch is on the disk, or never will be.
    pub(crate) async fn wait(&self) -> Result<()> {
        loop {
            let done = self.done.notified();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            done.await;
        }
    }

    /// As [`Commit::wait`], on a thread that may block.
    pub(crate) fn wait_here(&self) -> Result<()> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut wait = pin!(self.wait());
        loop {
            match wait.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    pub(crate) fn finish(&self, outcome: Result<()>) {
        // The first word stands: a batch is finished once.
        let _ = self.outcome.set(outcome);
        self.done.notify_waiters();
    }
}

/// Wakes a thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What is appended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) mailbox: u32,
    pub(crate) kind: Kind,
    pub(crate) fact: &'a [u8],
    pub(crate) letter: Option<&'a Arc<EncodedLetter>>,
}

impl Entry<'_> {
    pub(crate) fn len(&self) -> usize {
        let letter_len = self.letter.map_or(0, |letter| letter.bytes.len());
        record_len(self.fact.len(), letter_len)
    }
}

/// Where a log goes on.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u32,
    pub(crate) records_in_segment: u64,
    pub(crate) last_lsn: u64,
    pub(crate) last_batch: u64,
    pub(crate) spares: VecDeque<Arc<Segment>>,
}

impl Log {
    pub(crate) fn new(resume: Resume) -> Self {
        Self {
            batches: VecDeque::new(),
            writing: None,
            segment: resume.segment,
            offset: resume.offset,
            records_in_segment: resume.records_in_segment,
            next_lsn: resume.last_lsn + 1,
            next_batch: resume.last_batch + 1,
            spares: resume.spares,
            waiting: 0,
            awaited: 0,
            urgent: false,
            failed: None,
            full: None,
            stuck: false,
            stop: false,
        }
    }

    /// Whether a record of this length fits into the present segment.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.fits_own(len + OWN_LEN)
    }

    /// The same for records about the log itself, with the seal behind them.
    pub(crate) fn fits_own(&self, len: usize) -> bool {
        let left = (self.segment.len - self.offset).saturating_sub(SEAL_LEN);
        len <= left as usize
    }

    /// Whether the largest record that there may be would need the next segment.
    pub(crate) fn is_running_out(&self) -> bool {
        !self.fits(self.segment.len as usize / 2)
    }

    /// How much can be written before another segment is needed.
    pub(crate) fn room(&self) -> u64 {
        let spares: u64 = self.spares.iter().map(|spare| u64::from(spare.len)).sum();
        u64::from(self.segment.len - self.offset) + spares
    }

    /// Appends a record, which must fit.
    pub(crate) fn push(&mut self, entry: Entry<'_>) -> (Place, Arc<Commit>) {
        let len = entry.len();
        let head = RecordHead {
            salt: self.segment.salt,
            batch: self.open_batch(len),
            lsn: self.next_lsn,
            mailbox: entry.mailbox,
        };
        let batch = self.batches.back_mut().expect("one is open");
        batch.push(head, entry);
        let commit = Arc::clone(&batch.commit);
        let offset = self.offset;
        self.offset += u32::try_from(len).expect("it fits into a segment");
        batch.end = self.offset;
        self.next_lsn += 1;
        self.records_in_segment += 1;
        self.waiting += len;
        let len = u32::try_from(len).expect("it fits into a segment");
        (Place { segment: self.segment.number, offset, len }, commit)
    }

    /// Closes the present segment, and goes on in the next one. The caller writes its head.
    pub(crate) fn roll(&mut self, seal: Entry<'_>, next: Arc<Segment>, data_start: u32) {
        self.push(seal);
        self.batches.back_mut().expect("the seal is in it").seals = true;
        self.segment = next;
        self.offset = data_start;
        self.records_in_segment = 0;
    }

    /// The number of the batch that a record of this length goes into.
    fn open_batch(&mut self, len: usize) -> u64 {
        if self.batches.back().is_none_or(|batch| !batch.takes(len)) {
            self.batches.push_back(Batch {
                id: self.next_batch,
                segment: Arc::clone(&self.segment),
                offset: self.offset,
                end: self.offset,
                parts: Vec::new(),
                last_record: (0, 0),
                commit: Arc::default(),
                seals: false,
                awaited: 0,
            });
            self.next_batch += 1;
        }
        self.batches.back().expect("one is open").id
    }

    /// The number of the batch that a record of this length would go into now.
    pub(crate) fn batch_for(&self, len: usize) -> u64 {
        match self.batches.back() {
            Some(batch) if batch.takes(len) => batch.id,
            _ => self.next_batch,
        }
    }

    /// The next batch to write. What is appended from now on goes into another.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        let mut batch = self.batches.pop_front()?;
        batch.mark_last();
        self.waiting -= (batch.end - batch.offset) as usize;
        self.urgent &= !self.batches.is_empty();
        batch.awaited = std::mem::take(&mut self.awaited);
        self.writing = Some((position(batch.segment.number, batch.end), Arc::clone(&batch.commit)));
        Some(batch)
    }

    pub(crate) fn written(&mut self) {
        self.writing = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// More than one batch waits, so the first cannot grow any more.
    pub(crate) fn has_closed_batch(&self) -> bool {
        self.batches.len() > 1 || self.batches.front().is_some_and(|batch| batch.seals)
    }

    /// What to wait for so that everything before `until` is durable; `None` if there is nothing.
    pub(crate) fn commit_of(&self, until: u64) -> Option<Arc<Commit>> {
        if let Some(error) = &self.failed {
            // Whatever was not durable then never will be, although nothing waits any more.
            let commit = Commit::default();
            commit.finish(Err(error.clone()));
            return Some(Arc::new(commit));
        }
        let waiting = self
            .batches
            .iter()
            .map(|batch| (position(batch.segment.number, batch.end), &batch.commit));
        let writing = self.writing.iter().map(|(end, commit)| (*end, commit));
        let mut last = None;
        for (end, commit) in writing.chain(waiting) {
            last = Some(Arc::clone(commit));
            if end >= until {
                break;
            }
        }
        last
    }

    /// Everything that waits will never be written.
    pub(crate) fn abandon(&mut self) -> Vec<Arc<Commit>> {
        let writing = self.writing.take().map(|(_, commit)| commit);
        (self.waiting, self.awaited) = (0, 0);
        let waiting = self.batches.drain(..).map(|batch| batch.commit);
        writing.into_iter().chain(waiting).collect()
    }
}

impl Batch {
    /// Whether there is room for a record of this length.
    fn takes(&self, len: usize) -> bool {
        let size = (self.end - self.offset) as usize;
        !self.seals && (size == 0 || size + len <= BATCH_BYTES)
    }

    fn push(&mut self, head: RecordHead, entry: Entry<'_>) {
        let large = entry.letter.filter(|letter| letter.bytes.len() >= LARGE_LETTER);
        let after_letter = matches!(self.parts.last(), None | Some(Part::Letter(..)));
        if after_letter {
            self.parts.push(Part::Records(Vec::with_capacity(4096)));
        }
        let part = self.parts.len() - 1;
        let Some(Part::Records(buffer)) = self.parts.last_mut() else {
            unreachable!("one was added if there was none");
        };
        self.last_record = (part, buffer.len());
        let letter = entry.letter.map(|letter| &**letter);
        match large {
            None => record::append(buffer, head, entry.kind, entry.fact, letter),
            Some(large) => {
                record::append_head(buffer, head, entry.kind, entry.fact, letter);
                let unpadded = RECORD_HEADER + entry.fact.len() + large.bytes.len();
                let padding = padded(unpadded) - unpadded;
                self.parts.push(Part::Letter(Arc::clone(large), padding));
            }
        }
        debug_assert_eq!(
            self.parts.iter().map(Part::len).sum::<usize>(),
            (self.end - self.offset) as usize + entry.len(),
            "a record has the length that was worked out for it"
        );
    }

    fn mark_last(&mut self) {
        let (part, at) = self.last_record;
        if let Some(Part::Records(buffer)) = self.parts.get_mut(part) {
            record::mark_last(&mut buffer[at..]);
        }
    }
}

/// A place in the log as one number that grows.
pub(crate) const fn position(segment: u32, offset: u32) -> u64 {
    (segment as u64) << 32 | offset as u64
}

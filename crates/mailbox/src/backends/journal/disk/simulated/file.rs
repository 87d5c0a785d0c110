//! A simulated file: what reads see, what a power cut cannot take away, and the writes that are
//! the difference. As long as no sync failed, what is durable and the writes that are not, in
//! their order, make what is seen.

use std::sync::Arc;

use super::fate::Fate;
use super::pages::Pages;

/// What a disk writes whole or not at all.
pub(super) const SECTOR_LEN: u64 = 512;

#[derive(Clone, Default)]
pub(super) struct File {
    seen: Pages,
    durable: Pages,
    unsynced: Vec<Write>,
    /// A sync failed: some of what is seen is not durable, and no sync makes it so.
    has_lost: bool,
    /// How often it is open.
    pub(super) handles: u32,
}

#[derive(Clone)]
struct Write {
    offset: u64,
    bytes: Arc<[u8]>,
}

impl File {
    /// A file of which everything is durable.
    pub(super) fn durable(pages: Pages) -> Self {
        Self { seen: pages.clone(), durable: pages, ..Self::default() }
    }

    pub(super) fn seen(&self) -> &Pages {
        &self.seen
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        self.seen.write(bytes, offset);
        self.unsynced.push(Write { offset, bytes: Arc::from(bytes) });
    }

    /// Makes the writes since the last sync durable.
    pub(super) fn sync(&mut self) {
        for write in self.unsynced.drain(..) {
            if self.has_lost {
                self.durable.write(&write.bytes, write.offset);
            } else {
                self.durable.adopt(&self.seen, write.offset, write.bytes.len());
            }
        }
    }

    /// As kernels do it: what could not be written is taken for written.
    pub(super) fn fail_sync(&mut self) {
        self.has_lost |= !self.unsynced.is_empty();
        self.unsynced.clear();
    }

    /// Puts other bytes in its place, and makes them durable.
    pub(super) fn replace(&mut self, pages: Pages) {
        *self = Self { handles: self.handles, ..Self::durable(pages) };
    }

    /// What a power cut leaves.
    pub(super) fn after_crash(&self, fate: &mut Fate) -> Pages {
        if self.unsynced.is_empty() {
            return self.durable.clone();
        }
        match fate.of_file() {
            FileFate::Nothing => self.durable.clone(),
            FileFate::Everything if !self.has_lost => self.seen.clone(),
            FileFate::Everything => self.keep(SECTOR_LEN, |_| true),
            FileFate::Prefix => {
                let count: u64 = self.unsynced.iter().map(|write| grains(write, SECTOR_LEN)).sum();
                let mut left = fate.below(count + 1);
                self.keep(SECTOR_LEN, |_| {
                    let is_kept = left > 0;
                    left = left.saturating_sub(1);
                    is_kept
                })
            }
            FileFate::Scattered { grain, sixteenths } => {
                let mut pages = self.scatter(fate, grain, sixteenths);
                // The length may come through without the bytes.
                let end = self.unsynced.iter().map(Write::end).max().unwrap_or(0);
                if end > pages.len() && fate.below(4) == 0 {
                    pages.set_len(end);
                }
                pages
            }
        }
    }

    /// Keeps each grain with some chance. Of several writes to one it keeps the first ones: when
    /// it went to the disk, all that had been written to it before went with it.
    fn scatter(&self, fate: &mut Fate, grain: u64, sixteenths: u64) -> Pages {
        let first = self.unsynced.iter().map(|write| write.offset / grain).min().unwrap_or(0);
        let end = self.unsynced.iter().map(Write::end).max().unwrap_or(0).div_ceil(grain);
        let count = usize::try_from(end - first).expect("files are shorter than memory");
        let mut is_closed = vec![false; count];
        self.keep(grain, |number| {
            let at = usize::try_from(number - first).expect("it is less than the count");
            is_closed[at] = is_closed[at] || fate.below(16) >= sixteenths;
            !is_closed[at]
        })
    }

    /// What is durable, and those parts of the unsynced writes that `is_kept` says; it is asked
    /// with the number of each grain, in the order of the writes.
    fn keep(&self, grain: u64, mut is_kept: impl FnMut(u64) -> bool) -> Pages {
        let mut pages = self.durable.clone();
        for write in &self.unsynced {
            let mut run = write.offset;
            let mut at = write.offset;
            while at < write.end() {
                let next = ((at / grain + 1) * grain).min(write.end());
                if !is_kept(at / grain) {
                    pages.write(write.part(run, at), run);
                    run = next;
                }
                at = next;
            }
            pages.write(write.part(run, at), run);
        }
        pages
    }
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// The bytes from one offset in the file to another.
    fn part(&self, from: u64, to: u64) -> &[u8] {
        let at = |offset: u64| {
            usize::try_from(offset - self.offset).expect("it lies in what was written")
        };
        &self.bytes[at(from)..at(to)]
    }
}

fn grains(write: &Write, grain: u64) -> u64 {
    if write.bytes.is_empty() { 0 } else { write.end().div_ceil(grain) - write.offset / grain }
}

/// What a power cut does to the unsynced writes of a file.
pub(super) enum FileFate {
    /// All are lost.
    Nothing,
    /// All came through.
    Everything,
    /// The first ones came through, up to some sector.
    Prefix,
    /// Each `grain` bytes came through with a chance of their own.
    Scattered { grain: u64, sixteenths: u64 },
}

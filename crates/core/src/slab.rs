//! Messages by slot number. Invariant: `len` slots are full, every vacant slot of an existing chunk
//! is in the free list exactly once, and at most one chunk beyond the first is entirely empty.
//!
//! Chunked, so that growth never copies what is there (a doubling `Vec` stops a shard of a million
//! messages for tens of milliseconds) and so that memory goes back when a backlog is gone. The
//! caller may fill any vacant slot, not only the offered one: a replay puts messages where the
//! events say they were.

const CHUNK: u32 = 256;
/// No slot; also the bound on the number of slots.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone)]
enum Cell<T> {
    Vacant { prev: u32, next: u32 },
    Full(T),
}

#[derive(Debug, Clone)]
struct Chunk<T> {
    cells: Box<[Cell<T>]>,
    full: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    /// `None` where a chunk was given back, or where a replay skipped over.
    chunks: Vec<Option<Chunk<T>>>,
    free: u32,
    len: u32,
    empty_chunks: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0, empty_chunks: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// A slot that [`Slab::fill`] will accept next.
    pub(crate) fn vacant(&self) -> u32 {
        if self.free != NONE {
            return self.free;
        }
        let hole = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        u32::try_from(hole).map_or(NONE, |chunk| chunk.saturating_mul(CHUNK))
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let chunk = self.chunks.get((slot / CHUNK) as usize)?.as_ref()?;
        match &chunk.cells[(slot % CHUNK) as usize] {
            Cell::Full(value) => Some(value),
            Cell::Vacant { .. } => None,
        }
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut((slot / CHUNK) as usize)?.as_mut()?;
        match &mut chunk.cells[(slot % CHUNK) as usize] {
            Cell::Full(value) => Some(value),
            Cell::Vacant { .. } => None,
        }
    }

    /// Puts `value` into a vacant slot.
    pub(crate) fn fill(&mut self, slot: u32, value: T) {
        assert!(slot < NONE, "slot {slot} is out of range");
        self.ensure_chunk(slot / CHUNK);
        self.unlink(slot);
        let chunk = self.chunk_mut(slot / CHUNK);
        chunk.cells[(slot % CHUNK) as usize] = Cell::Full(value);
        chunk.full += 1;
        if chunk.full == 1 {
            self.empty_chunks -= 1;
        }
        self.len += 1;
    }

    /// Takes the value out of a full slot.
    pub(crate) fn take(&mut self, slot: u32) -> Option<T> {
        self.get(slot)?;
        let next = self.free;
        let chunk = self.chunk_mut(slot / CHUNK);
        let vacant = Cell::Vacant { prev: NONE, next };
        let cell = std::mem::replace(&mut chunk.cells[(slot % CHUNK) as usize], vacant);
        chunk.full -= 1;
        let emptied = chunk.full == 0;
        self.set_prev(next, slot);
        self.free = slot;
        self.len -= 1;
        if emptied {
            self.empty_chunks += 1;
            if self.empty_chunks > 1 {
                self.drop_chunk(slot / CHUNK);
            }
        }
        match cell {
            Cell::Full(value) => Some(value),
            Cell::Vacant { .. } => None,
        }
    }

    fn chunk_mut(&mut self, chunk: u32) -> &mut Chunk<T> {
        self.chunks[chunk as usize].as_mut().expect("the chunk of a known slot exists")
    }

    fn ensure_chunk(&mut self, index: u32) {
        while self.chunks.len() <= index as usize {
            self.chunks.push(None);
        }
        if self.chunks[index as usize].is_some() {
            return;
        }
        let first = index * CHUNK;
        let count = CHUNK.min(NONE - first);
        let old_free = self.free;
        let cells = (first..first + count)
            .map(|slot| Cell::Vacant {
                prev: if slot == first { NONE } else { slot - 1 },
                next: if slot + 1 == first + count { old_free } else { slot + 1 },
            })
            .collect();
        self.chunks[index as usize] = Some(Chunk { cells, full: 0 });
        self.set_prev(old_free, first + count - 1);
        self.free = first;
        self.empty_chunks += 1;
    }

    fn drop_chunk(&mut self, index: u32) {
        let first = index * CHUNK;
        let count = u32::try_from(self.chunk_mut(index).cells.len()).expect("a chunk is small");
        for slot in first..first + count {
            self.unlink(slot);
        }
        self.chunks[index as usize] = None;
        self.empty_chunks -= 1;
        while matches!(self.chunks.last(), Some(None)) {
            self.chunks.pop();
        }
    }

    /// Takes a vacant slot out of the free list.
    fn unlink(&mut self, slot: u32) {
        let Cell::Vacant { prev, next } =
            self.chunk_mut(slot / CHUNK).cells[(slot % CHUNK) as usize]
        else {
            panic!("slot {slot} is taken");
        };
        if prev == NONE {
            self.free = next;
        } else {
            self.set_next(prev, next);
        }
        self.set_prev(next, prev);
    }

    fn set_prev(&mut self, slot: u32, to: u32) {
        if slot != NONE
            && let Cell::Vacant { prev, .. } =
                &mut self.chunk_mut(slot / CHUNK).cells[(slot % CHUNK) as usize]
        {
            *prev = to;
        }
    }

    fn set_next(&mut self, slot: u32, to: u32) {
        if let Cell::Vacant { next, .. } =
            &mut self.chunk_mut(slot / CHUNK).cells[(slot % CHUNK) as usize]
        {
            *next = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_vacant_slot_can_be_filled_and_the_offered_one_always() {
        let mut slab = Slab::new();
        slab.fill(1_000, 'x');
        for _ in 0..2_000 {
            let slot = slab.vacant();
            assert!(slab.get(slot).is_none());
            slab.fill(slot, 'y');
        }
        assert_eq!((slab.len(), slab.get(1_000)), (2_001, Some(&'x')));
    }

    #[test]
    fn an_emptied_slab_gives_its_chunks_back() {
        let mut slab = Slab::new();
        let slots: Vec<u32> = (0..100_000)
            .map(|value| {
                let slot = slab.vacant();
                slab.fill(slot, value);
                slot
            })
            .collect();
        for slot in slots {
            assert!(slab.take(slot).is_some());
            assert!(slab.take(slot).is_none());
        }
        assert_eq!(slab.len(), 0);
        assert!(slab.chunks.iter().flatten().count() <= 1);
        let slot = slab.vacant();
        slab.fill(slot, 1);
        assert_eq!(slab.get(slot), Some(&1));
    }
}

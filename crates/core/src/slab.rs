//! Messages by slot number. Invariant: a bit in `vacant` is set exactly for the vacant slots of an
//! existing chunk, the last chunk in `open` has one, and at most one chunk is entirely empty.
//!
//! Chunked, so that growth never copies what is there (a doubling `Vec` would stop everybody while
//! it moves a million messages) and so that memory goes back when a backlog is gone. The caller
//! may fill any vacant slot, not only the offered one: a replay puts messages where the events say
//! they were.

const CHUNK: u32 = 256;
const CELLS: usize = CHUNK as usize;
const WORDS: usize = CELLS / 64;
/// No slot; also the bound on the number of slots.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone)]
struct Chunk<T> {
    /// An array, not a slice: a slot's place in it is below 256 and needs no check.
    cells: Box<[Option<T>; CELLS]>,
    vacant: [u64; WORDS],
    full: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    /// `None` where a chunk was given back, or where a replay skipped over.
    chunks: Vec<Option<Chunk<T>>>,
    /// Chunks with a vacant slot, each once; some may have become full, or been given back.
    open: Vec<u32>,
    /// Whether a chunk is in `open`.
    is_open: Vec<bool>,
    len: u32,
    empty_chunks: u32,
}

impl<T> Chunk<T> {
    fn new() -> Self {
        let cells: Box<[Option<T>]> = (0..CELLS).map(|_| None).collect();
        let Ok(cells) = cells.try_into() else { unreachable!("it has that many cells") };
        Self { cells, vacant: [u64::MAX; WORDS], full: 0 }
    }

    fn first_vacant(&self) -> Option<u32> {
        let word = self.vacant.iter().position(|word| *word != 0)?;
        u32::try_from(word).ok().map(|index| index * 64 + self.vacant[word].trailing_zeros())
    }

    fn flip(&mut self, cell: usize) {
        self.vacant[cell / 64] ^= 1 << (cell % 64);
    }
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), open: Vec::new(), is_open: Vec::new(), len: 0, empty_chunks: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// A slot that [`Slab::fill`] will accept next.
    #[inline]
    pub(crate) fn vacant(&self) -> u32 {
        if let Some(&index) = self.open.last()
            && let Some(Some(chunk)) = self.chunks.get(index as usize)
            && let Some(cell) = chunk.first_vacant()
        {
            return index * CHUNK + cell;
        }
        let hole = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        u32::try_from(hole).map_or(NONE, |chunk| chunk.saturating_mul(CHUNK))
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let chunk = self.chunks.get((slot / CHUNK) as usize)?.as_ref()?;
        chunk.cells[(slot % CHUNK) as usize].as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut((slot / CHUNK) as usize)?.as_mut()?;
        chunk.cells[(slot % CHUNK) as usize].as_mut()
    }

    /// Puts `value` into a vacant slot.
    #[inline(always)]
    pub(crate) fn fill(&mut self, slot: u32, value: T) {
        let (index, cell) = ((slot / CHUNK) as usize, (slot % CHUNK) as usize);
        if !matches!(self.chunks.get(index), Some(Some(_))) {
            self.add_chunk(slot);
        }
        let Some(Some(chunk)) = self.chunks.get_mut(index) else { unreachable!("just added") };
        let place = &mut chunk.cells[cell];
        assert!(place.is_none(), "slot {slot} is taken");
        *place = Some(value);
        chunk.flip(cell);
        chunk.full += 1;
        self.len += 1;
        self.empty_chunks -= u32::from(chunk.full == 1);
        if chunk.full == CHUNK {
            self.close_full_chunks();
        }
    }

    /// Empties a full slot, keeping what `keep` takes out of its value. The value is dropped where
    /// it is: moving all of it out would cost more than the rest of this.
    #[inline]
    pub(crate) fn take<K>(&mut self, slot: u32, keep: impl FnOnce(&mut T) -> K) -> Option<K> {
        let (index, cell) = ((slot / CHUNK) as usize, (slot % CHUNK) as usize);
        let chunk = self.chunks.get_mut(index)?.as_mut()?;
        let value = keep(chunk.cells[cell].as_mut()?);
        chunk.cells[cell] = None;
        chunk.flip(cell);
        chunk.full -= 1;
        self.len -= 1;
        let emptied = chunk.full == 0;
        if !self.is_open[index] {
            self.is_open[index] = true;
            self.open.push(slot / CHUNK);
        }
        if emptied {
            self.empty_chunks += 1;
            if self.empty_chunks > 1 {
                self.drop_chunk(index);
            }
        }
        Some(value)
    }

    #[cold]
    fn add_chunk(&mut self, slot: u32) {
        assert!(slot < NONE, "slot {slot} is out of range");
        let index = (slot / CHUNK) as usize;
        while self.chunks.len() <= index {
            self.chunks.push(None);
            self.is_open.push(false);
        }
        self.chunks[index] = Some(Chunk::new());
        self.empty_chunks += 1;
        if !std::mem::replace(&mut self.is_open[index], true) {
            self.open.push(slot / CHUNK);
        }
    }

    /// Gives an empty chunk back.
    #[cold]
    fn drop_chunk(&mut self, index: usize) {
        self.chunks[index] = None;
        self.empty_chunks -= 1;
        self.close_full_chunks();
        while matches!(self.chunks.last(), Some(None)) {
            let last = self.chunks.len() - 1;
            if self.is_open.pop() == Some(true) {
                self.open.retain(|open| *open as usize != last);
            }
            self.chunks.pop();
        }
    }

    /// Restores the invariant of `open`: its last chunk exists and has a vacant slot.
    fn close_full_chunks(&mut self) {
        while let Some(&last) = self.open.last() {
            let chunk = self.chunks.get(last as usize).and_then(Option::as_ref);
            if chunk.is_some_and(|chunk| chunk.full < CHUNK) {
                return;
            }
            self.open.pop();
            self.is_open[last as usize] = false;
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
            assert!(slab.take(slot, |_| ()).is_some());
            assert!(slab.take(slot, |_| ()).is_none());
        }
        assert_eq!(slab.len(), 0);
        assert!(slab.chunks.iter().flatten().count() <= 1);
        let slot = slab.vacant();
        slab.fill(slot, 1);
        assert_eq!(slab.get(slot), Some(&1));
    }
}

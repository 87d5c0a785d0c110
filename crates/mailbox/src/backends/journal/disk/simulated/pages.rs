//! The bytes of a simulated file, in pages that copies share until one of them is written to.
//! A page that is not there is all zeros.

use std::sync::Arc;

pub(super) const PAGE_LEN: usize = 4096;
static ZEROS: Page = Page([0; PAGE_LEN]);

#[derive(Clone)]
struct Page([u8; PAGE_LEN]);

/// The bytes of a file. A clone costs as much as a pointer.
#[derive(Clone, Default)]
pub(super) struct Pages {
    /// As many as `len` needs.
    pages: Arc<Vec<Option<Arc<Page>>>>,
    len: u64,
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer`; false if there is less than that.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> bool {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return false;
        }
        for piece in pieces(offset, buffer.len()) {
            let page = self.pages[piece.page].as_deref().unwrap_or(&ZEROS);
            let bytes = &page.0[piece.start..piece.start + piece.len];
            buffer[piece.done..piece.done + piece.len].copy_from_slice(bytes);
        }
        true
    }

    /// Writes, and makes it longer if need be; what was skipped is zeros.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        if end > self.len && !bytes.is_empty() {
            self.set_len(end);
        }
        let pages = Arc::make_mut(&mut self.pages);
        for piece in pieces(offset, bytes.len()) {
            let bytes = &bytes[piece.done..piece.done + piece.len];
            let page = &mut pages[piece.page];
            let is_zero = bytes == &ZEROS.0[..piece.len];
            if is_zero && (page.is_none() || piece.len == PAGE_LEN) {
                *page = None;
                continue;
            }
            let page = page.get_or_insert_with(|| Arc::new(ZEROS.clone()));
            Arc::make_mut(page).0[piece.start..piece.start + piece.len].copy_from_slice(bytes);
        }
    }

    /// Takes whole pages over from `other`, where a write of `len` bytes touched them.
    pub(super) fn adopt(&mut self, other: &Self, offset: u64, len: usize) {
        let end = offset + len as u64;
        if end > self.len && len > 0 {
            self.set_len(end);
        }
        let pages = Arc::make_mut(&mut self.pages);
        for piece in pieces(offset, len) {
            pages[piece.page].clone_from(&other.pages[piece.page]);
        }
    }

    /// Cuts it short, or makes it longer with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len && !len.is_multiple_of(PAGE_LEN as u64) {
            // What comes back when it grows again must be zeros.
            let rest = PAGE_LEN - index(len % PAGE_LEN as u64);
            let rest = rest.min(index(self.len - len));
            self.write(&ZEROS.0[..rest], len);
        }
        let count = index(len.div_ceil(PAGE_LEN as u64));
        if count != self.pages.len() {
            Arc::make_mut(&mut self.pages).resize(count, None);
        }
        self.len = len;
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; index(self.len)];
        let is_whole = self.read(&mut bytes, 0);
        debug_assert!(is_whole);
        bytes
    }
}

/// A part of a range of bytes that lies in one page.
struct Piece {
    page: usize,
    /// Where it begins in the page.
    start: usize,
    len: usize,
    /// How much of the range lies before it.
    done: usize,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = index(at % PAGE_LEN as u64);
        let piece = Piece {
            page: index(at / PAGE_LEN as u64),
            start,
            len: (PAGE_LEN - start).min(len - done),
            done,
        };
        done += piece.len;
        Some(piece)
    })
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("files are shorter than memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_read_back_what_a_plain_vector_would() {
        let mut pages = Pages::default();
        let mut plain = Vec::new();
        let mut random = 1u64;
        for step in 0..400u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
            let offset = index((random >> 40) % 20_000);
            let len = index((random >> 20) % 9_000);
            match random >> 61 {
                0 => {
                    plain.resize(offset, 0);
                    pages.set_len(offset as u64);
                }
                kind => {
                    let byte = if kind < 3 { 0 } else { random.to_le_bytes()[0] };
                    if len > 0 {
                        plain.resize(plain.len().max(offset + len), 0);
                        plain[offset..offset + len].fill(byte);
                    }
                    pages.write(&vec![byte; len], offset as u64);
                }
            }
            assert_eq!(pages.len(), plain.len() as u64);
            assert!(pages.to_vec() == plain, "step {step}");
        }
    }

    #[test]
    fn a_copy_does_not_see_what_is_written_later() {
        let mut pages = Pages::default();
        pages.write(&[1; 10_000], 0);
        let copy = pages.clone();
        pages.write(&[2; 5_000], 3_000);
        pages.set_len(4_000);
        assert!(copy.to_vec() == [1; 10_000]);
    }

    #[test]
    fn a_read_past_the_end_is_refused() {
        let mut pages = Pages::default();
        pages.write(&[1; 10], 0);
        assert!(pages.read(&mut [0; 10], 0));
        assert!(!pages.read(&mut [0; 10], 1));
        assert!(!pages.read(&mut [0; 1], u64::MAX));
    }
}

//! An allocator that wipes memory before it is freed, once it was told to. A service that keeps
//! nothing must leave no message behind in memory that somebody else gets next; and most copies of
//! a message are in buffers of libraries, which wipe nothing. Here they all come by.
//!
//! The only `unsafe` code of the workspace is in this file. Invariants: every block goes back to
//! the allocator it came from, with the layout it was made with; nothing is written outside of it.
#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// Another allocator, and whether what it gets back is wiped before.
#[derive(Debug)]
pub struct Wiping<A> {
    inner: A,
    is_on: AtomicBool,
}

impl<A> Wiping<A> {
    /// Wipes nothing until it is told to.
    pub const fn new(inner: A) -> Self {
        Self { inner, is_on: AtomicBool::new(false) }
    }

    /// From here on everything is wiped that is freed.
    pub fn wipe_from_now_on(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

// SAFETY: memory comes from the inner allocator and goes back to it, with the layout it was asked
// for with; that of `realloc` too, which is an `alloc` and a `dealloc` if old blocks are wiped.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by whoever calls this.
        unsafe { self.inner.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by whoever calls this.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.is_on() {
            // SAFETY: the block is as large as its layout says, and nobody else has it any more.
            unsafe { block.write_bytes(0, layout.size()) };
            // Nobody reads it any more, so a compiler that knows what freeing is would leave the
            // write out. It does not know what the box does with the block.
            black_box(block);
        }
        // SAFETY: as promised by whoever calls this.
        unsafe { self.inner.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.is_on() {
            // SAFETY: as promised by whoever calls this.
            return unsafe { self.inner.realloc(block, layout, size) };
        }
        // SAFETY: whoever calls this promises that the new size fits with the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the new size is not 0, as promised by whoever calls this.
        let moved = unsafe { self.inner.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both are at least so large, and the new one is nobody's else.
            unsafe { moved.copy_from_nonoverlapping(block, layout.size().min(size)) };
            // SAFETY: as promised by whoever calls this; it is not used any more.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::sync::Mutex;

    use super::*;

    /// Looks at blocks when they come back.
    struct Looking(Mutex<Vec<Vec<u8>>>);

    // SAFETY: everything is left to the system's allocator.
    unsafe impl GlobalAlloc for Looking {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as promised by whoever calls this.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the block is as large as its layout says, and was written when it was made.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            self.0.lock().unwrap().push(bytes.to_vec());
            // SAFETY: as promised by whoever calls this.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// What comes back of a block with these bytes, which grows and shrinks before.
    fn come_back(allocator: &Wiping<Looking>) -> Vec<Vec<u8>> {
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the size is not 0.
        let mut block = unsafe { allocator.alloc(layout(4)) };
        // SAFETY: the block is that large.
        unsafe { block.copy_from_nonoverlapping(b"mine".as_ptr(), 4) };
        for (old, new) in [(4, 9), (9, 2)] {
            // SAFETY: it has the old size, and the new one is not 0.
            block = unsafe { allocator.realloc(block, layout(old), new) };
            // SAFETY: it is at least that large.
            assert_eq!(unsafe { std::slice::from_raw_parts(block, 2) }, b"mi", "it is kept");
        }
        // SAFETY: it has the last size.
        unsafe { allocator.dealloc(block, layout(2)) };
        std::mem::take(&mut *allocator.inner.0.lock().unwrap())
    }

    #[test]
    fn what_is_freed_is_wiped_once_that_is_wanted() {
        let allocator = Wiping::new(Looking(Mutex::default()));
        let kept = [&b"mine"[..], b"mine\0\0\0\0\0", b"mi"];
        assert_eq!(come_back(&allocator), kept);
        allocator.wipe_from_now_on();
        assert_eq!(come_back(&allocator), [vec![0; 4], vec![0; 9], vec![0; 2]]);
    }
    /// A block of the system's, written and freed in sight of the compiler, which knows of `free`
    /// that it reads nothing. Where it was.
    fn freed(allocator: &Wiping<System>, size: usize) -> usize {
        let layout = Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the size is not 0.
        let block = unsafe { allocator.alloc(layout) };
        // SAFETY: the block is that large.
        unsafe { block.write_bytes(MARK, size) };
        // Or this would not be written either.
        black_box(block);
        // SAFETY: it has that layout, and is not used any more.
        unsafe { allocator.dealloc(block, layout) };
        block.addr()
    }

    const MARK: u8 = 0xA5;

    /// Tells something only if the compiler optimizes, as `cargo test --release` does.
    #[cfg(target_os = "linux")]
    #[test]
    fn wiping_is_not_left_out_before_the_system_frees() {
        use std::os::unix::fs::FileExt;

        const SIZE: usize = 4096;
        // Whatever is at the beginning of a free block is the system's.
        const OWN: usize = 64;
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let marks = |is_wiping: bool| {
            let allocator = Wiping::new(System);
            if is_wiping {
                allocator.wipe_from_now_on();
            }
            // What is free cannot be read as what one has; but the process can be looked into.
            let mut bytes = [0; SIZE - OWN];
            let address = freed(&allocator, SIZE) + OWN;
            memory.read_exact_at(&mut bytes, address as u64).unwrap();
            bytes.iter().filter(|byte| **byte == MARK).count()
        };
        assert_eq!(marks(false), SIZE - OWN, "this test sees what is free");
        assert_eq!(marks(true), 0, "nothing of it is left");
    }
}

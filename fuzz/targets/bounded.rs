//! An allocator that ends the process when somebody asks for more at once than is allowed: what
//! libFuzzer takes for a crash.
#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is needed beside frames: buffers of a reader, tables of zstd, bookkeeping.
const SLACK: usize = 256 * 1024;

/// The largest allocation that is allowed; anything before a target has said so.
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

#[global_allocator]
static BOUNDED: Bounded = Bounded;

struct Bounded;

impl Bounded {
    fn check(size: usize) {
        // To show where something went wrong takes more than anything else.
        if size > MOST.load(Ordering::Relaxed) && !std::thread::panicking() {
            MOST.store(usize::MAX, Ordering::Relaxed);
            eprintln!("an allocation of {size} bytes is larger than the bound");
            std::process::abort();
        }
    }
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size());
        // SAFETY: as promised by whoever calls this.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size());
        // SAFETY: as promised by whoever calls this.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::check(size);
        // SAFETY: as promised by whoever calls this.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as promised by whoever calls this.
        unsafe { System.dealloc(place, layout) }
    }
}

/// From here on nobody may ask for more than this at once, and a little beside.
pub(crate) fn allow(most: usize) {
    MOST.store(most.saturating_add(SLACK), Ordering::Relaxed);
    // The proof that it works: `scripts/run-fuzz.sh` expects this to end the process.
    if most != usize::MAX && std::env::var_os("FUZZ_PLANT").is_some() {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(most + SLACK + 1)));
    }
}

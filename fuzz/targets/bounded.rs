//! An allocator that ends the process when somebody asks for more at once, or has more in all, than
//! is allowed: what libFuzzer takes for a crash.
#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is needed beside frames: buffers of a reader, tables of zstd, bookkeeping.
const SLACK: usize = 256 * 1024;

/// The largest allocation that is allowed; anything before a target has said so.
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// How much is allocated, and how much may be.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST_LIVE: AtomicUsize = AtomicUsize::new(usize::MAX);

#[global_allocator]
static BOUNDED: Bounded = Bounded;

struct Bounded;

impl Bounded {
    /// Somebody wants so much, and so much more than before.
    fn check(size: usize, more: usize) {
        let live = LIVE.fetch_add(more, Ordering::Relaxed) + more;
        let is_larger = size > MOST.load(Ordering::Relaxed);
        // To show where something went wrong takes more than anything else.
        if (is_larger || live > MOST_LIVE.load(Ordering::Relaxed)) && !std::thread::panicking() {
            MOST.store(usize::MAX, Ordering::Relaxed);
            let before = MOST_LIVE.swap(usize::MAX, Ordering::Relaxed);
            let over = live.saturating_sub(before);
            eprintln!("an allocation of {size} bytes, {over} too many, is larger than the bound");
            std::process::abort();
        }
    }
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size(), layout.size());
        // SAFETY: as promised by whoever calls this.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size(), layout.size());
        // SAFETY: as promised by whoever calls this.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::check(size, size.saturating_sub(layout.size()));
        LIVE.fetch_sub(layout.size().saturating_sub(size), Ordering::Relaxed);
        // SAFETY: as promised by whoever calls this.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by whoever calls this.
        unsafe { System.dealloc(place, layout) }
    }
}

/// From here on nobody may ask for more than this at once, and a little beside; nor may there be
/// more than that in all beside what there is already.
pub(crate) fn allow(at_once: usize, in_all: usize) {
    MOST.store(at_once.saturating_add(SLACK), Ordering::Relaxed);
    MOST_LIVE.store(LIVE.load(Ordering::Relaxed).saturating_add(in_all), Ordering::Relaxed);
    // The proof that it works: `scripts/run-fuzz.sh` expects this to end the process.
    let most = at_once.saturating_add(SLACK).min(in_all);
    if most != usize::MAX && std::env::var_os("FUZZ_PLANT").is_some() {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(most + 1)));
    }
}

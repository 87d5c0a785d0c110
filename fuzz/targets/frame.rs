//! See `checks/frame.rs`.
#![no_main]

mod bounded;
#[path = "../checks/frame.rs"]
mod frame;

libfuzzer_sys::fuzz_target!(|input: &[u8]| frame::check(input, bounded::allow));

//! See `checks/ops.rs`.
#![no_main]

mod bounded;
#[path = "../checks/ops.rs"]
mod ops;

libfuzzer_sys::fuzz_target!(|input: &[u8]| ops::check(input, bounded::allow));

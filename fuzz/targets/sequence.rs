//! See `checks/sequence.rs`.
#![no_main]

mod bounded;
#[path = "../checks/sequence.rs"]
mod sequence;

libfuzzer_sys::fuzz_target!(|input: &[u8]| sequence::check(input, bounded::allow));

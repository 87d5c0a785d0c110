//! See `checks/proto.rs`.
#![no_main]

mod bounded;
#[path = "../checks/proto.rs"]
mod proto;

libfuzzer_sys::fuzz_target!(|input: &[u8]| proto::check(input, bounded::allow));

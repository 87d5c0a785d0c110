//! The inputs that fuzzing is started from, through the same checks, so that they are looked at by
//! whoever runs the tests. `scripts/run-fuzz.sh` looks for others.

use std::path::{Path, PathBuf};

#[path = "../../../../../fuzz/checks/frame.rs"]
mod frame;
#[path = "../../../../../fuzz/checks/ops.rs"]
mod ops;
#[cfg(feature = "proto")]
#[path = "../../../../../fuzz/checks/proto.rs"]
mod proto;
#[path = "../../../../../fuzz/checks/sequence.rs"]
mod sequence;

/// Allocations are not bounded here.
fn allow(_at_once: usize, _in_all: usize) {}

/// Most inputs of a target, and most bytes of all of them: they are for ever.
const MOST: (usize, usize) = (200, 200 * 1024);

fn kept(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let inputs: Vec<_> = files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    assert!(!inputs.is_empty(), "nothing in {}", folder.display());
    let bytes: usize = inputs.iter().map(|(_, input)| input.len()).sum();
    assert!(inputs.len() <= MOST.0 && bytes <= MOST.1, "too much in {}", folder.display());
    inputs
}

/// What is checked of an input, and who is told how much may be allocated.
type Check = fn(&[u8], Allow);
type Allow = fn(usize, usize);

/// Says which input it was if a check fails.
fn replay(target: &str, check: Check) {
    for (path, input) in kept(target) {
        let checked = std::panic::catch_unwind(|| check(&input, allow));
        assert!(checked.is_ok(), "{}", path.display());
    }
}

#[test]
fn frames_hold() {
    replay("frame", frame::check);
}

#[test]
fn sequences_hold() {
    replay("sequence", sequence::check);
}

#[test]
fn ops_hold() {
    replay("ops", ops::check);
}

#[cfg(feature = "proto")]
#[test]
fn protobuf_holds() {
    replay("proto", proto::check);
}

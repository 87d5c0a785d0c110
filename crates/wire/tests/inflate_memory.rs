//! What it costs to inflate what somebody made to cost a lot. A test binary of its own, because the
//! memory of the whole process is measured: zstd asks Rust's allocator for what it needs, and one
//! that counts cannot be written without `unsafe`.
#![cfg(all(feature = "oap", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

use mailbox_wire::oap::{Fault, MAX_INFLATED, inflate};

/// What a decoder needs for itself, and the noise of the allocator.
const SLACK: usize = 2 << 20;

/// What of this process is in memory, in bytes: now (`VmRSS`), or at most so far (`VmHWM`).
fn memory(which: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    let kilobytes = line.trim_start_matches(':').trim_end_matches("kB").trim();
    kilobytes.parse::<usize>().unwrap() * 1024
}

/// A frame of zstd: blocks that say one byte many times, as many as fit into `len`.
fn bomb(len: usize, announced: Option<u64>) -> Vec<u8> {
    let mut bomb = vec![0x28, 0xB5, 0x2F, 0xFD];
    match announced {
        Some(size) => {
            bomb.extend([0xE0]);
            bomb.extend(size.to_le_bytes());
        }
        // A window of 8 MiB, and no length.
        None => bomb.extend([0x00, 13 << 3]),
    }
    let blocks = (len - bomb.len()) / 4;
    for block in 1..=blocks {
        let is_last = u32::from(block == blocks);
        let header = (128 * 1024) << 3 | 1 << 1 | is_last;
        bomb.extend(&header.to_le_bytes()[..3]);
        bomb.push(b'x');
    }
    bomb
}

/// All that is allowed, with enough in it that is not one byte many times.
fn largest() -> Vec<u8> {
    const RAW: usize = 64 * 1024;
    let block = |size: usize, kind: u32, is_last: bool| {
        let header = (size as u32) << 3 | kind << 1 | u32::from(is_last);
        header.to_le_bytes().into_iter().take(3)
    };
    let mut largest = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 13 << 3];
    largest.extend(block(RAW, 0, false));
    largest.extend([b'y'; RAW]);
    let mut left = MAX_INFLATED - RAW;
    while left > 0 {
        let size = left.min(128 * 1024);
        left -= size;
        largest.extend(block(size, 1, left == 0));
        largest.push(b'x');
    }
    largest
}

#[test]
fn a_bomb_costs_no_more_than_the_bound() {
    let largest = largest();
    // A block of four bytes is 128 KiB: 33 KiB are a gigabyte, and 64 blocks all that is allowed.
    let bombs = [
        bomb(6 + 64 * 4, None),
        bomb(33 * 1024, None),
        bomb(33 * 1024, Some(1 << 30)),
        bomb(33 * 1024, Some(MAX_INFLATED as u64)),
        bomb(33 * 1024, Some(u64::MAX - 2)),
        bomb(6 + 65 * 4, None),
        bomb(1024, Some(1 << 30)),
    ];
    let before = memory("VmRSS");
    assert_eq!(inflate(&largest, MAX_INFLATED).unwrap().len(), MAX_INFLATED);
    for bomb in &bombs {
        let fault = inflate(bomb, MAX_INFLATED).map(|it| it.len()).unwrap_err().fault;
        let is_known = matches!(fault, Fault::Inflates(_) | Fault::Ratio(_) | Fault::NotZstd);
        assert!(is_known, "{fault:?}");
    }
    let cost = memory("VmHWM") - before;
    assert!(cost >= MAX_INFLATED - SLACK, "{cost} bytes: nothing was measured");
    assert!(cost <= MAX_INFLATED + SLACK, "{cost} bytes, {MAX_INFLATED} are allowed");
    let code = inflate(&bombs[0], MAX_INFLATED).map_err(|malformed| malformed.code());
    assert_eq!(code.map(|it| it.len()), Err(413));
}

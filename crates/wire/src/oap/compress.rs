//! Payloads compressed with zstd. Invariant: to inflate takes at most as much memory as was
//! allowed, and what a decoder needs for itself, whatever the bytes say; so everything goes
//! straight to where it stays, and no window is kept beside it.

use bytes::Bytes;
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall;
use zstd::zstd_safe::{compress, decompress, find_frame_compressed_size, get_frame_content_size};

use super::malformed::{Fault, Malformed};
use crate::payload::wiped;

/// The quickest of zstd's usual levels: a payload is compressed once and read once.
const LEVEL: i32 = 1;
/// How zstd says that something did not fit.
const DID_NOT_FIT: usize = (ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();
/// How a frame of zstd begins.
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Room for a first try if the bytes do not say how much they are.
const FIRST_TRY: usize = 64 * 1024;
/// A payload may be so many times what it was compressed to: a few bytes that become megabytes are
/// nobody's message, and cost the one who inflates them far more than the one who sends them.
const RATIO: usize = 200;
/// What is no larger than this may be compressed to anything.
const FREE: usize = 64 * 1024;

/// What was compressed: exactly one frame of zstd. It is wiped when it is dropped.
///
/// # Errors
/// It is not that, or it is or needs more than `max` bytes, or more than [`most_inflated`]. Whose
/// answer this is nobody knows here.
pub fn inflate(deflated: &[u8], max: usize) -> Result<Bytes, Malformed> {
    inflated(deflated, max).map(wiped).map_err(|fault| Malformed::new(fault, 0))
}

fn inflated(deflated: &[u8], max: usize) -> Result<Vec<u8>, Fault> {
    // Another frame behind it could inflate too, and one that is to be skipped could hide things.
    let is_one =
        deflated.starts_with(&MAGIC) && find_frame_compressed_size(deflated) == Ok(deflated.len());
    let announced = get_frame_content_size(deflated).map_err(|_| Fault::NotZstd)?;
    if !is_one {
        return Err(Fault::NotZstd);
    }
    let too_large = |size: u64| size > max as u64;
    if announced.is_some_and(too_large) || window(deflated).is_some_and(too_large) {
        return Err(Fault::Inflates(max));
    }
    let most = max.min(most_inflated(deflated.len()));
    let too_much = if most < max { Fault::Ratio(most) } else { Fault::Inflates(max) };
    if let Some(size) = announced {
        if size > most as u64 {
            return Err(too_much);
        }
        return attempt(deflated, size as usize).map_err(|_| Fault::NotZstd);
    }
    let mut room = FIRST_TRY.min(most);
    loop {
        match attempt(deflated, room) {
            Ok(inflated) => return Ok(inflated),
            Err(DID_NOT_FIT) if room < most => room = room.saturating_mul(4).min(most),
            Err(DID_NOT_FIT) => return Err(too_much),
            Err(_) => return Err(Fault::NotZstd),
        }
    }
}

/// Inflates to at most so many bytes.
fn attempt(deflated: &[u8], room: usize) -> Result<Vec<u8>, usize> {
    let mut inflated = Vec::with_capacity(room);
    let done = decompress(&mut inflated, deflated);
    if let Err(code) = done {
        // Some of it may be there.
        inflated.resize(inflated.capacity(), 0);
        drop(wiped(inflated));
        return Err(code);
    }
    Ok(inflated)
}

/// To how many bytes a payload of so many may inflate, whatever else there is room for.
#[must_use]
pub const fn most_inflated(deflated_len: usize) -> usize {
    let most = deflated_len.saturating_mul(RATIO);
    if most < FREE { FREE } else { most }
}

/// How much [`inflate`] may take, as far as that can be told before: what it says, or the bound.
#[must_use]
pub fn inflates_to(deflated: &[u8], max: usize) -> usize {
    let most = max.min(most_inflated(deflated.len()));
    let announced = get_frame_content_size(deflated).ok().flatten();
    announced.map_or(most, |size| usize::try_from(size).unwrap_or(most).min(most))
}

/// How far back its parts refer, as a frame of zstd says: what others would need beside the result.
/// Nothing if it is all of it.
fn window(deflated: &[u8]) -> Option<u64> {
    const IS_ALL: u8 = 0x20;
    let (descriptor, window) = (*deflated.get(4)?, *deflated.get(5)?);
    if descriptor & IS_ALL != 0 {
        return None;
    }
    let base = 1_u64 << (10 + (window >> 3));
    Some(base + base / 8 * u64::from(window & 7))
}

/// Compressed, if that is smaller, and not so much smaller that nobody would inflate it.
#[must_use]
pub fn deflate(plain: &[u8]) -> Option<Vec<u8>> {
    let mut deflated = Vec::with_capacity(plain.len().checked_sub(1)?);
    compress(&mut deflated, plain, LEVEL).ok()?;
    (plain.len() <= most_inflated(deflated.len())).then_some(deflated)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::oap::MAX_INFLATED;

    /// Without its length in front.
    fn streamed(plain: &[u8], window_log: Option<u32>) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_contentsize(false).unwrap();
        if let Some(log) = window_log {
            encoder.window_log(log).unwrap();
        }
        for part in plain.chunks(10_000) {
            encoder.write_all(part).unwrap();
        }
        encoder.finish().unwrap()
    }

    fn fault(deflated: &[u8], max: usize) -> Fault {
        inflate(deflated, max).unwrap_err().fault
    }

    #[test]
    fn what_is_compressed_comes_back() {
        for len in [1, 100, FIRST_TRY - 1, FIRST_TRY, FIRST_TRY + 1, 1_000_000] {
            let plain: Vec<u8> = (0..len).map(|at| (at * at / 9000) as u8).collect();
            assert_eq!(inflate(&streamed(&plain, None), MAX_INFLATED).unwrap(), plain);
            if let Some(deflated) = deflate(&plain) {
                assert!(deflated.len() < len);
                assert_eq!(inflate(&deflated, len).unwrap(), plain);
                assert_eq!(fault(&deflated, len - 1), Fault::Inflates(len - 1));
            } else {
                assert!(len <= 100, "{len} bytes that repeat themselves");
            }
        }
        assert_eq!(deflate(b""), None);
        let random: Vec<u8> = (0..100_u32).map(|at| ((at * at * 7919) >> 3) as u8).collect();
        assert_eq!(deflate(&random), None);
    }

    #[test]
    fn the_bound_holds_whether_the_length_is_announced_or_not() {
        let plain: Vec<u8> = (0..300_000_u64).map(|at| (at * at / 9000) as u8).collect();
        for deflated in [deflate(&plain).unwrap(), streamed(&plain, Some(17))] {
            assert_eq!(inflate(&deflated, 300_000).unwrap(), plain);
            assert_eq!(fault(&deflated, 299_999), Fault::Inflates(299_999));
        }
    }

    #[test]
    fn a_few_bytes_do_not_become_megabytes() {
        let bomb = vec![0; MAX_INFLATED];
        assert_eq!(deflate(&bomb), None);
        let mut announced = Vec::with_capacity(4096);
        compress(&mut announced, &bomb, LEVEL).unwrap();
        for deflated in [announced, streamed(&bomb, None)] {
            let most = most_inflated(deflated.len());
            assert!(most < MAX_INFLATED / 10, "{most}");
            assert_eq!(fault(&deflated, MAX_INFLATED), Fault::Ratio(most));
            assert_eq!(inflates_to(&deflated, MAX_INFLATED), most);
        }
        // What is small in any case may be compressed to nothing.
        let small = vec![0; FREE];
        assert_eq!(inflate(&deflate(&small).unwrap(), MAX_INFLATED).unwrap(), small);
        assert_eq!(inflates_to(&deflate(&small).unwrap(), MAX_INFLATED), FREE);
        assert_eq!(most_inflated(1), FREE);
        assert_eq!(most_inflated(usize::MAX), usize::MAX);
    }

    #[test]
    fn only_one_frame_of_zstd_is_taken() {
        let one = deflate(&[b'x'; 1000]).unwrap();
        let skipped = [0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, b'h', b'i'];
        for bad in [
            &b""[..],
            b"no zstd at all",
            &one[..one.len() - 1],
            &[&one[..], &one].concat(),
            &[&one[..], b"\0"].concat(),
            &[&one[..], &skipped].concat(),
            &[&skipped[..], &one].concat(),
            &skipped,
            &MAGIC,
        ] {
            assert_eq!(fault(bad, MAX_INFLATED), Fault::NotZstd, "{bad:?}");
        }
        for at in 0..one.len() {
            let mut flipped = one.clone();
            flipped[at] ^= 0x10;
            // Whatever comes of it, it ends, and within the bound.
            let _ = inflate(&flipped, 2000).map(|plain| assert!(plain.len() <= 2000));
        }
    }

    #[test]
    fn a_length_that_is_not_true_is_no_zstd() {
        let deflated = deflate(&[b'x'; 1000]).unwrap();
        // The length is in two bytes behind the descriptor, less 256.
        assert_eq!(deflated[5..7], 744_u16.to_le_bytes());
        for lie in [0_u16, 743, 745, 65_000] {
            let mut deflated = deflated.clone();
            deflated[5..7].copy_from_slice(&lie.to_le_bytes());
            assert_eq!(fault(&deflated, MAX_INFLATED), Fault::NotZstd, "{lie}");
        }
    }

    #[test]
    fn a_window_that_is_larger_than_the_bound_is_refused() {
        let plain = [b'x'; FREE];
        assert_eq!(inflate(&streamed(&plain, Some(23)), MAX_INFLATED).unwrap(), &plain[..]);
        assert_eq!(fault(&streamed(&plain, Some(24)), MAX_INFLATED), Fault::Inflates(MAX_INFLATED));
        let mut deflated = streamed(&plain, Some(23));
        deflated[5] = 21 << 3 | 7;
        assert_eq!(fault(&deflated, MAX_INFLATED), Fault::Inflates(MAX_INFLATED));
    }
}

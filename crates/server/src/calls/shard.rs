//! Which shard a message is counted under. Invariant: the same for the same mailbox and partition,
//! in every process and for ever.

/// The shard of a mailbox, or of a partition of it.
pub(crate) fn shard(mailbox: &str, partition: Option<&str>, shards: u32) -> u32 {
    // FNV-1a: short texts, no secrets, and easy to write in any language.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let partition = partition.map(|partition| [&[0], partition.as_bytes()].concat());
    let bytes = mailbox.bytes().chain(partition.into_iter().flatten());
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325, step);
    u32::try_from(hash % u64::from(shards.max(1))).expect("less than a 32-bit number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_used_alike_and_never_change() {
        let mut counts = [0; 8];
        for number in 0..8000 {
            counts[shard(&format!("user:{number}:inbox"), None, 8) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(shard("jobs", None, 8), shard("jobs", None, 8));
        assert_eq!([shard("jobs", None, 8), shard("jobs", Some("a"), 8)], [5, 2]);
    }
}

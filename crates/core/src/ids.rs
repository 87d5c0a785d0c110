//! Names of messages and of deliveries.

use std::num::NonZeroU64;

/// The identity of a message, chosen by the home and shown to users. Never changes (D4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u128);

/// Where a message lives in its queue. The slot finds it without a search, the sequence number
/// tells it from whoever had the slot before or has it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Position in the order of sending; never reused.
    pub seq: u64,
    /// Place in the slab; reused after the message is gone.
    pub slot: u32,
}

/// The identity of one delivery: (epoch of the open, counter), packed into 64 bits. Never reused
/// (V3) because every open of a queue starts a higher epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

impl LeaseId {
    /// 2^40 deliveries fit into one epoch: twelve days at a million a second.
    const COUNTER_BITS: u32 = 40;
    /// The highest epoch there is.
    pub const MAX_EPOCH: u32 = (1 << (64 - Self::COUNTER_BITS)) - 2;

    /// The first lease of an epoch.
    ///
    /// # Panics
    /// If `epoch` is above [`LeaseId::MAX_EPOCH`].
    #[must_use]
    pub fn first_of(epoch: u32) -> Self {
        assert!(epoch <= Self::MAX_EPOCH, "epoch {epoch} is above {}", Self::MAX_EPOCH);
        let raw = (u64::from(epoch) + 1) << Self::COUNTER_BITS;
        Self(NonZeroU64::new(raw).expect("epoch + 1 is not zero"))
    }

    /// The epoch this lease was given in.
    #[must_use]
    pub fn epoch(self) -> u32 {
        u32::try_from((self.0.get() >> Self::COUNTER_BITS) - 1).expect("24 bits fit")
    }

    /// The lease as a number, for the wire and the disk.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The lease with this number, if it can be one.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> Self::COUNTER_BITS == 0 {
            return None;
        }
        match NonZeroU64::new(bits) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// The lease after this one. Runs over into the next epoch after 2^40, which the next open
    /// then skips, because it starts above the highest epoch ever seen.
    pub(crate) fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("2^64 leases cannot have been given"))
    }
}

/// What a consumer holds for one delivery: which message, and under which lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt {
    /// The message.
    pub key: Key,
    /// The delivery.
    pub lease: LeaseId,
}

//! What the queue of `mailbox-core` is compared with: the least a queue with leases could be made
//! of. A slab holds the payloads, a `VecDeque` the order, a `BinaryHeap` the deadlines. It checks
//! nothing, counts nothing, and could not settle messages out of order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;

use bytes::Bytes;
use slab::Slab;

use crate::timing::Cycle;

/// Bare structures with a standing backlog.
#[derive(Debug)]
pub(crate) struct Bare {
    payloads: Slab<Bytes>,
    order: VecDeque<usize>,
    deadlines: BinaryHeap<Reverse<(u64, usize)>>,
    now: u64,
    payload: Payload,
}

impl Bare {
    /// With `waiting` messages that are never received: each cycle sends one and takes the oldest.
    pub(crate) fn new(payload: Payload, waiting: u32) -> Self {
        let mut bare = Self {
            payloads: Slab::new(),
            order: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            now: 0,
            payload,
        };
        for _ in 0..waiting {
            let key = bare.payloads.insert(bare.payload.next());
            bare.order.push_back(key);
        }
        bare
    }
}

impl Cycle for Bare {
    fn run(&mut self, times: u32) {
        for _ in 0..times {
            self.now += 1_000;
            let key = self.payloads.insert(self.payload.next());
            self.order.push_back(key);
            if let Some(key) = self.order.pop_front() {
                self.deadlines.push(Reverse((self.now + 30_000_000_000, key)));
            }
            if let Some(Reverse((_, key))) = self.deadlines.pop() {
                let freed = self.payloads.remove(key);
                black_box(&freed);
            }
        }
    }
}

/// Where payloads of 1 KiB come from; the same for both sides.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Bytes,
    is_shared: bool,
}

impl Payload {
    /// One for all messages, counted.
    pub(crate) fn shared() -> Self {
        Self { bytes: Bytes::from(vec![7; 1_024]), is_shared: true }
    }

    /// A new one for each message, allocated and filled.
    pub(crate) fn own() -> Self {
        Self { is_shared: false, ..Self::shared() }
    }

    /// The payload of the next message.
    pub(crate) fn next(&self) -> Bytes {
        if self.is_shared { self.bytes.clone() } else { Bytes::copy_from_slice(&self.bytes) }
    }
}

//! The file `index`, written at a clean stop: what replaying the log would give, so that opening
//! does not have to. Invariant: nothing that was read counts before [`IndexReader::next`] has said
//! that there is nothing more; then all of it is what was written, in this order.
//!
//! ```text
//!  0 magic  8 version u32  12 crc u32 (of 0..12 and 16..72)  16 journal [16]  32 shard u16
//! 34 zero  36 segment u32  40 end u32  44 first_segment u32  48 last_lsn u64  56 last_batch u64
//! 64 rooms u32  68 zero  72 blocks: len u32, crc u32, len bytes
//! ```
//!
//! Blocks hold rooms, each followed by its messages and its keys; no item is in two blocks. The
//! checksum of a block goes on from that of the one before it, the first from that of the head, so
//! that blocks cannot be lost, changed over or come from another index. The last block holds the
//! totals.

use crc32c::{crc32c, crc32c_append};
use mailbox_core::{Keepsake, Standing};

use crate::backends::journal::format::cursor::Cursor;
use crate::backends::journal::format::entry::{MESSAGE, put_message, take_message};
use crate::backends::journal::format::event::Remembered;
use crate::backends::journal::format::fact::{decode_room, encode_room};
use crate::backends::journal::format::{FORMAT_VERSION, Flaw, Place, versioned};

const MAGIC: &[u8; 8] = b"MBXINDX\0";
/// Where the first block starts.
const HEAD: usize = 72;
/// Length and checksum in front of a block.
const BLOCK_HEADER: usize = 8;
/// Longest block.
const BLOCK_LEN: usize = 256 * 1024;
/// A block is finished when it has got this long; no item is longer than what is then left.
const BLOCK_FULL: usize = BLOCK_LEN / 2;
/// Length of a key without its text.
const KEY: usize = 58;

/// Which state of which log an index is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexHead {
    /// The journal.
    pub(crate) journal: [u8; 16],
    /// The log.
    pub(crate) shard: u16,
    /// Number of its last segment.
    pub(crate) segment: u32,
    /// Where in it the next record would be.
    pub(crate) end: u32,
    /// The last record.
    pub(crate) last_lsn: u64,
    /// The last batch.
    pub(crate) last_batch: u64,
    /// The first segment that is still needed.
    pub(crate) first_segment: u32,
    /// How many mailboxes follow.
    pub(crate) rooms: u32,
}

impl IndexHead {
    fn encode(&self) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.journal);
        out[32..34].copy_from_slice(&self.shard.to_le_bytes());
        out[36..40].copy_from_slice(&self.segment.to_le_bytes());
        out[40..44].copy_from_slice(&self.end.to_le_bytes());
        out[44..48].copy_from_slice(&self.first_segment.to_le_bytes());
        out[48..56].copy_from_slice(&self.last_lsn.to_le_bytes());
        out[56..64].copy_from_slice(&self.last_batch.to_le_bytes());
        out[64..68].copy_from_slice(&self.rooms.to_le_bytes());
        let crc = head_checksum(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        versioned(bytes, MAGIC)?;
        let head = bytes.first_chunk::<HEAD>().ok_or(Flaw::Length)?;
        let mut cursor = Cursor::new(&head[12..]);
        if cursor.u32()? != head_checksum(head) {
            return Err(Flaw::Checksum);
        }
        let (journal, shard) = (*cursor.array()?, cursor.u16()?);
        cursor.take(2)?;
        let (segment, end, first_segment) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let (last_lsn, last_batch, rooms) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        Ok(Self { journal, shard, segment, end, last_lsn, last_batch, first_segment, rooms })
    }
}

fn head_checksum(head: &[u8; HEAD]) -> u32 {
    crc32c_append(crc32c(&head[..12]), &head[16..])
}

/// How much an index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    rooms: u64,
    live: u64,
    dead: u64,
    keys: u64,
}

impl Counts {
    const fn encode(self) -> [[u8; 8]; 4] {
        let Self { rooms, live, dead, keys } = self;
        [rooms.to_le_bytes(), live.to_le_bytes(), dead.to_le_bytes(), keys.to_le_bytes()]
    }
}

/// Makes an index, block by block. What is ready has to be taken now and then, or it piles up.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    ready: Vec<u8>,
    /// The block that is being filled, with room for its header.
    block: Vec<u8>,
    /// The checksum of what came before.
    chain: u32,
    written: Counts,
}

impl IndexWriter {
    pub(crate) fn new(head: &IndexHead) -> Self {
        let head = head.encode();
        let chain = head_checksum(&head);
        Self { ready: head.to_vec(), block: empty_block(), chain, written: Counts::default() }
    }

    /// A mailbox. Then come its messages, as many as `live` and `dead`, and then its keys.
    pub(crate) fn room(
        &mut self,
        number: u32,
        name: &str,
        standing: &Standing,
        live: u64,
        dead: u64,
        keys: u64,
    ) {
        self.block.extend_from_slice(&number.to_le_bytes());
        for count in [live, dead, keys] {
            self.block.extend_from_slice(&count.to_le_bytes());
        }
        encode_room(name, standing, &mut self.block);
        self.written.rooms += 1;
        self.close_if_full();
    }

    /// A message of the mailbox that was written last.
    pub(crate) fn message(&mut self, keepsake: &Keepsake<Place>) {
        put_message(keepsake, &mut self.block);
        match keepsake.death {
            None => self.written.live += 1,
            Some(_) => self.written.dead += 1,
        }
        self.close_if_full();
    }

    /// An idempotency key of the mailbox that was written last.
    pub(crate) fn key(&mut self, remembered: &Remembered) {
        remembered.encode(&mut self.block);
        self.written.keys += 1;
        self.close_if_full();
    }

    /// What can be written to the file by now, if anything.
    pub(crate) fn take_ready(&mut self) -> Option<Vec<u8>> {
        (!self.ready.is_empty()).then(|| std::mem::take(&mut self.ready))
    }

    /// The rest of the file.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.block.len() > BLOCK_HEADER {
            self.close();
        }
        for count in self.written.encode() {
            self.block.extend_from_slice(&count);
        }
        self.close();
        self.ready
    }

    fn close_if_full(&mut self) {
        if self.block.len() >= BLOCK_FULL {
            self.close();
        }
    }

    fn close(&mut self) {
        let mut block = std::mem::replace(&mut self.block, empty_block());
        debug_assert!(block.len() <= BLOCK_LEN, "every item fits into half a block");
        let len = u32::try_from(block.len() - BLOCK_HEADER).expect("blocks are short");
        block[..4].copy_from_slice(&len.to_le_bytes());
        self.chain = block_checksum(self.chain, &block[..4], &block[BLOCK_HEADER..]);
        block[4..BLOCK_HEADER].copy_from_slice(&self.chain.to_le_bytes());
        self.ready.append(&mut block);
    }
}

fn empty_block() -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK_FULL + BLOCK_FULL / 8);
    block.resize(BLOCK_HEADER, 0);
    block
}

fn block_checksum(before: u32, len: &[u8], bytes: &[u8]) -> u32 {
    crc32c_append(crc32c_append(before, len), bytes)
}

/// What is in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// A mailbox. Its messages follow, then its keys. There are no more of them than would fit into
    /// the rest of the file, so it is safe to make room for them.
    Room {
        /// Its number.
        number: u32,
        /// Its name.
        name: String,
        /// Its rules and counters.
        standing: Standing,
        /// Messages that are not dead letters.
        live: u64,
        /// Dead letters.
        dead: u64,
        /// Idempotency keys.
        keys: u64,
    },
    /// A message.
    Message(Keepsake<Place>),
    /// An idempotency key.
    Key(Remembered),
}

/// Reads an index, block by block.
#[derive(Debug)]
pub(crate) struct IndexReader<'a> {
    rest: &'a [u8],
    block: Cursor<'a>,
    chain: u32,
    /// What the head and the present mailbox have announced and has not been read.
    left: Counts,
    read: Counts,
    done: bool,
}

impl<'a> IndexReader<'a> {
    /// Starts reading a whole file.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<(Self, IndexHead), Flaw> {
        let head = IndexHead::decode(bytes)?;
        let (start, rest) = bytes.split_first_chunk::<HEAD>().ok_or(Flaw::Length)?;
        let left = Counts { rooms: u64::from(head.rooms), ..Counts::default() };
        let (block, chain) = (Cursor::new(&[]), head_checksum(start));
        Ok((Self { rest, block, chain, left, read: Counts::default(), done: false }, head))
    }

    /// The next item; `None` at the end, when everything has turned out to be right.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, Flaw> {
        if self.done {
            return Ok(None);
        }
        if self.block.is_empty() {
            self.next_block()?;
        }
        let item = if self.left.live + self.left.dead > 0 {
            Item::Message(self.message()?)
        } else if self.left.keys > 0 {
            let key = Remembered::take(&mut self.block)?;
            self.left.keys -= 1;
            self.read.keys += 1;
            Item::Key(key)
        } else if self.left.rooms > 0 {
            self.room()?
        } else {
            self.end()?;
            return Ok(None);
        };
        Ok(Some(item))
    }

    fn next_block(&mut self) -> Result<(), Flaw> {
        let mut file = Cursor::new(self.rest);
        let len_bytes: &[u8; 4] = file.array()?;
        let crc = file.u32()?;
        let len = usize::try_from(u32::from_le_bytes(*len_bytes)).map_err(|_| Flaw::Length)?;
        if len == 0 || len > BLOCK_LEN {
            return Err(Flaw::Length);
        }
        let bytes = file.take(len)?;
        if block_checksum(self.chain, len_bytes, bytes) != crc {
            return Err(Flaw::Checksum);
        }
        self.chain = crc;
        self.block = Cursor::new(bytes);
        self.rest = file.take(file.left())?;
        Ok(())
    }

    fn room(&mut self) -> Result<Item, Flaw> {
        let number = self.block.u32()?;
        let (live, dead, keys) = (self.block.u64()?, self.block.u64()?, self.block.u64()?);
        let (name, standing) = decode_room(&mut self.block)?;
        let there = self.block.left() + self.rest.len();
        let announced = live
            .checked_add(dead)
            .and_then(|messages| messages.checked_mul(MESSAGE as u64))
            .and_then(|messages| messages.checked_add(keys.checked_mul(KEY as u64)?))
            .and_then(|bytes| usize::try_from(bytes).ok());
        if announced.is_none_or(|announced| announced > there) {
            return Err(Flaw::Field("counts"));
        }
        self.left = Counts { rooms: self.left.rooms - 1, live, dead, keys };
        self.read.rooms += 1;
        Ok(Item::Room { number, name, standing, live, dead, keys })
    }

    fn message(&mut self) -> Result<Keepsake<Place>, Flaw> {
        let keepsake = take_message(&mut self.block)?;
        let (left, read) = match keepsake.death {
            None => (&mut self.left.live, &mut self.read.live),
            Some(_) => (&mut self.left.dead, &mut self.read.dead),
        };
        *left = left.checked_sub(1).ok_or(Flaw::Field("counts"))?;
        *read += 1;
        Ok(keepsake)
    }

    /// The block that is there now must be that of the totals, and the last.
    fn end(&mut self) -> Result<(), Flaw> {
        for count in self.read.encode() {
            if *self.block.array()? != count {
                return Err(Flaw::Field("totals"));
            }
        }
        self.block.done()?;
        Cursor::new(self.rest).done()?;
        self.done = true;
        Ok(())
    }
}

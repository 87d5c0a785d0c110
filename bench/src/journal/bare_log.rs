//! The limit: records with a checksum, one after the other, into a file whose blocks are all there
//! and written. One `pwrite` and one `fdatasync` for each batch. Starts again from the beginning
//! when the file is full, so it forgets without asking; it could deliver nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

use crate::journal::grouped::Store;
use crate::journal::place::zeros;

/// Length of the file. Large enough that a round does not write the same block twice.
const LEN: u64 = 384 * 1024 * 1024;

/// The file and where it goes on.
#[derive(Debug)]
pub(crate) struct BareLog {
    file: File,
    at: u64,
    sequence: u64,
    buffer: Vec<u8>,
}

impl BareLog {
    /// In this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let file = zeros(&folder.join("bare.log"), LEN).expect("there is room for the bare log");
        Self { file, at: 0, sequence: 0, buffer: Vec::new() }
    }

    /// Length, checksum of all that follows, number, payload.
    fn encode(&mut self, body: &Bytes) {
        let sequence = self.sequence.to_le_bytes();
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&sequence), body);
        self.buffer.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        self.buffer.extend_from_slice(&sequence);
        self.buffer.extend_from_slice(body);
        self.sequence += 1;
    }
}

impl Store for BareLog {
    fn commit(&mut self, bodies: &[Bytes]) {
        self.buffer.clear();
        bodies.iter().for_each(|body| self.encode(body));
        if self.at + self.buffer.len() as u64 > LEN {
            self.at = 0;
        }
        self.file.write_all_at(&self.buffer, self.at).expect("the bare log can be written");
        self.file.sync_data().expect("the bare log can be synced");
        self.at += self.buffer.len() as u64;
    }

    fn clear(&mut self) {}
}

//! What went away without being acknowledged: how much purges and retention have removed. Written
//! under the inbox's lock; a power cut may forget the last of it.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::renameat;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::backends::directory::folders::{Folders, create_file, open_file, remove};
use crate::backends::directory::lock::Locked;

const FILE: &str = "counts.json";
const NEW: &str = ".counts.json";
const LEN_MAX: u64 = 4096;

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Counts {
    purged: u64,
    retention_dropped: u64,
}

/// How many messages purges have removed, and retention.
pub(crate) fn read(folders: &Folders) -> io::Result<(u64, u64)> {
    let counts = load(folders)?;
    Ok((counts.purged, counts.retention_dropped))
}

/// Counts more of both.
pub(crate) fn add(
    folders: &Folders,
    _alone: &Locked<'_>,
    purged: u64,
    retention_dropped: u64,
) -> io::Result<()> {
    let mut counts = load(folders)?;
    counts.purged = counts.purged.saturating_add(purged);
    counts.retention_dropped = counts.retention_dropped.saturating_add(retention_dropped);
    remove(folders.root(), NEW)?;
    let mut file = File::from(create_file(folders.root(), NEW, folders.trust())?);
    serde_json::to_writer(&mut file, &counts)?;
    file.write_all(b"\n")?;
    Ok(renameat(folders.root(), NEW, folders.root(), FILE)?)
}

/// What is there; nothing where it makes no sense: it is told to people, and decides nothing.
fn load(folders: &Folders) -> io::Result<Counts> {
    let name = std::ffi::CString::new(FILE).expect("no zero in it");
    let fd = match open_file(folders.root(), &name) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Counts::default()),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    File::from(fd).take(LEN_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

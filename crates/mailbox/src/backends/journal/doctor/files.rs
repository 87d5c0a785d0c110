//! The files of a log, as far as they can be found and read. Invariant: nothing is written, and a
//! part of a file that cannot be read does not hide the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backends::journal::config::SEGMENT_LEN_MAX;
use crate::backends::journal::disk::{Disk, DiskFile};
use crate::backends::journal::doctor::findings::Findings;
use crate::backends::journal::doctor::walk::guess_salt;
use crate::backends::journal::format::segment::{SEGMENT_HEADER, SegmentHeader};
use crate::backends::journal::format::{FORMAT_VERSION, Flaw};
use crate::backends::journal::opening::META;
use crate::backends::journal::shard::recover::{io_error, unsupported};
use crate::backends::journal::shard::segment::{UNFINISHED, number_in, read_all};
use crate::error::{Error, ErrorKind, Result};

/// Read by itself when a file cannot be read as a whole.
const BLOCK: usize = 4096;
/// The name of the index of a clean stop.
pub(super) const INDEX: &str = "index";
/// Longest index that is looked at.
const INDEX_LEN_MAX: u64 = 1 << 34;

/// The folder of a log.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) shard: u16,
    /// Segments of this log, by number.
    pub(super) files: BTreeMap<u32, SegmentFile>,
    pub(super) has_index: bool,
}

/// A segment that was found.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) name: String,
    /// Length of the file.
    pub(super) len: u64,
    /// What it says about itself, or what can be said instead.
    pub(super) header: SegmentHeader,
    /// Its header cannot be read: records that are not above those before it are old ones.
    pub(super) is_guess: bool,
    /// Before this place there are bytes that cannot be read: cut off, or refused by the disk.
    pub(super) blind_until: u64,
}

impl Folder {
    /// Looks for the segments of a log, and says what is wrong with their headers. `journal` is
    /// that of all of them; `None` if it is not known.
    pub(super) fn find(
        disk: &Arc<dyn Disk>,
        root: &Path,
        shard: u16,
        journal: Option<[u8; 16]>,
        findings: &mut Findings,
    ) -> Result<Self> {
        let dir = root.join(folder_name(shard));
        let mut folder =
            Self { disk: Arc::clone(disk), dir, shard, files: BTreeMap::new(), has_index: false };
        let names = match folder.disk.list(&folder.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                findings.problem(&folder_name(shard), None, "the folder is missing".to_owned());
                findings.lost_uncounted();
                return Ok(folder);
            }
            Err(error) => return Err(io_error(&folder.dir, error)),
        };
        for name in names {
            folder.has_index |= name == INDEX;
            if name.ends_with(UNFINISHED) {
                let what = "was not finished; the next open removes it".to_owned();
                findings.remark(&folder.file(&name), None, what);
            } else if name.starts_with("torn-") {
                let what = "bytes of a torn batch that an earlier open has cut off".to_owned();
                findings.remark(&folder.file(&name), None, what);
            } else if let Some(number) = number_in(&name) {
                folder.look_at(name, number, journal, findings)?;
            }
        }
        if folder.files.is_empty() {
            findings.problem(&folder_name(shard), None, "all segments are missing".to_owned());
            findings.lost_uncounted();
        }
        Ok(folder)
    }

    /// What a file is called, seen from the journal's directory.
    pub(super) fn file(&self, name: &str) -> String {
        format!("{}/{name}", folder_name(self.shard))
    }

    fn look_at(
        &mut self,
        name: String,
        number: u32,
        journal: Option<[u8; 16]>,
        findings: &mut Findings,
    ) -> Result<()> {
        let (path, file) = (self.dir.join(&name), self.file(&name));
        let (bytes, mut blind_until) = self.read_segment(&path, &file, findings)?;
        let mut is_guess = false;
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) => header,
            Err(flaw) => {
                let mended = mended_header(&bytes);
                if mended.is_none() && is_newer(&flaw) {
                    return Err(unsupported(&path, &flaw));
                }
                findings.problem(&file, Some(0), format!("the header: {flaw}"));
                is_guess = mended.is_none();
                mended.unwrap_or_else(|| self.guess(&bytes, number, journal))
            }
        };
        if header.shard != self.shard || journal.is_some_and(|journal| journal != header.journal) {
            findings.problem(&file, Some(0), "a segment of another journal, left out".to_owned());
            // It may have taken the place of one that was not.
            findings.lost_uncounted();
            return Ok(());
        }
        if header.number != number {
            let what = format!("a file that was renamed: it is number {:08x}", header.number);
            findings.problem(&file, Some(0), what);
        }
        let len = bytes.len() as u64;
        if len < u64::from(header.len) {
            let what = format!("cut off at {len} of {} bytes", header.len);
            findings.problem(&file, Some(len), what);
            blind_until = u64::MAX;
        }
        let number = header.number;
        let segment = SegmentFile { name, len, header, is_guess, blind_until };
        self.files.entry(number).or_insert(segment);
        Ok(())
    }

    /// What can be said about a segment without its header.
    fn guess(&self, bytes: &[u8], number: u32, journal: Option<[u8; 16]>) -> SegmentHeader {
        SegmentHeader {
            journal: journal.unwrap_or_default(),
            shard: self.shard,
            number,
            // No record has this one.
            salt: guess_salt(bytes).map_or(0, |(salt, _)| salt),
            len: u32::try_from(bytes.len()).unwrap_or(SEGMENT_LEN_MAX),
            created_ms: 0,
        }
    }

    /// All of a segment, again.
    pub(super) fn read(&self, segment: &SegmentFile) -> Result<Vec<u8>> {
        let mut unheard = Findings::default();
        let path = self.dir.join(&segment.name);
        let (mut bytes, _) = self.read_segment(&path, "", &mut unheard)?;
        bytes.truncate(segment.header.len as usize);
        Ok(bytes)
    }

    /// The bytes of a segment, and where the last of those ends that the disk cannot read.
    fn read_segment(
        &self,
        path: &Path,
        file: &str,
        findings: &mut Findings,
    ) -> Result<(Vec<u8>, u64)> {
        let opened = self.disk.open(path).map_err(|error| io_error(path, error))?;
        let most = u64::from(SEGMENT_LEN_MAX);
        if let Ok(bytes) = read_all(&*opened, most) {
            return Ok((bytes, 0));
        }
        let mut blind_until = 0;
        let bytes = read_by_blocks(&*opened, most, |at, error| {
            findings.problem(file, Some(at), format!("the disk cannot read it: {error}"));
            blind_until = at + BLOCK as u64;
        });
        Ok((bytes.map_err(|error| io_error(path, error))?, blind_until))
    }

    /// The index of a clean stop, if there is one that can be read from the disk.
    pub(super) fn read_index(&self) -> Option<Vec<u8>> {
        let file = self.disk.open(&self.dir.join(INDEX)).ok()?;
        read_all(&*file, INDEX_LEN_MAX).ok()
    }
}

/// The folder of a shard.
pub(super) fn folder_name(shard: u16) -> String {
    format!("shard-{shard:02}")
}

/// As much of a file as can be read, with zeros for the rest.
fn read_by_blocks(
    file: &dyn DiskFile,
    most: u64,
    mut failed: impl FnMut(u64, std::io::Error),
) -> std::io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?.min(most)).map_err(std::io::Error::other)?;
    let mut bytes = vec![0; len];
    for (number, block) in bytes.chunks_mut(BLOCK).enumerate() {
        let at = (number * BLOCK) as u64;
        if let Err(error) = file.read_at(block, at) {
            block.fill(0);
            failed(at, error);
        }
    }
    Ok(bytes)
}

/// A header of which only the magic or the version is damaged: the checksum, which covers both,
/// proves what they were.
fn mended_header(bytes: &[u8]) -> Option<SegmentHeader> {
    let mut mended = *bytes.first_chunk::<SEGMENT_HEADER>()?;
    let pattern = SegmentHeader {
        journal: [0; 16],
        shard: 0,
        number: 1,
        salt: 1,
        len: u32::MAX,
        created_ms: 0,
    };
    mended[..12].copy_from_slice(&pattern.encode()[..12]);
    SegmentHeader::decode(&mended).ok()
}

/// Whether a file says that it is of a later version. What else is in such a file nobody here can
/// judge, not even its checksum. There never was a version 0: that is damage.
pub(super) const fn is_newer(flaw: &Flaw) -> bool {
    matches!(flaw, Flaw::Version(found) if *found > FORMAT_VERSION)
}

/// The path is not that of a journal: why not, and which one may be meant.
pub(super) fn not_a_journal(disk: &Arc<dyn Disk>, path: &Path, is_file: bool) -> Error {
    let why =
        if is_file { "it is a file, not a directory" } else { "there is no file `meta` in it" };
    let mut message = format!("{} is not a journal: {why}", path.display());
    // A file has no canonical path here.
    let whole = disk.canonical(path).unwrap_or_else(|_| path.to_owned());
    if let Some(above) = whole.parent()
        && disk.list(above).is_ok_and(|names| names.iter().any(|name| name == META))
    {
        message.push_str(&format!("; the journal is the directory above: {}", above.display()));
    }
    Error::new(ErrorKind::InvalidParameter, message).with_field("path")
}

//! Journals of later versions, disks that cannot be written, and paths that are not those of a
//! journal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::scenes::{AT, journal, shared};
use super::steps::segments;
use crate::ErrorKind;
use crate::backends::journal::disk::{Disk, DiskFile, Lock, SimDisk};
use crate::backends::journal::doctor::{examine, repair};

/// Neither examined nor repaired, and nothing is changed.
fn check_unsupported(disk: &SimDisk, file: &str, version: u32) {
    let content = |disk: &SimDisk| {
        let files = disk.files().into_iter().filter(|file| !file.ends_with("lock"));
        files.map(|file| (disk.read_file(&file), file)).collect::<Vec<_>>()
    };
    let before = content(disk);
    let errors = [
        examine(AT, &shared(disk)).unwrap_err(),
        repair(AT, None, &shared(disk)).unwrap_err(),
        repair(AT, Some(Path::new("/new")), &shared(disk)).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let message = error.message();
        assert!(message.contains(file), "{message}");
        assert!(message.contains(&format!("version {version}")), "{message}");
    }
    assert!(before == content(disk), "something was changed");
}

/// A header of 64 or 72 bytes with its checksum at 12, as a later version would write it.
fn set_version(disk: &SimDisk, file: &Path, version: u32, header: usize) {
    let mut bytes = disk.read_file(file);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..header]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    disk.write_file(file, bytes);
}

#[tokio::test]
async fn a_meta_of_a_later_version_is_never_damage() {
    let (disk, _) = journal(41, true).await;
    for version in [2_u32, 300] {
        let mut meta = disk.read_file("/data/journal/meta");
        meta.truncate(76);
        meta[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c(&meta[..72]);
        meta[72..].copy_from_slice(&crc.to_le_bytes());
        disk.write_file("/data/journal/meta", &meta);
        check_unsupported(&disk, "/data/journal/meta", version);
        // A later version may be longer, and have its checksum elsewhere.
        meta.extend_from_slice(&[7; 20]);
        disk.write_file("/data/journal/meta", &meta);
        check_unsupported(&disk, "/data/journal/meta", version);
    }
}

#[tokio::test]
async fn a_segment_or_an_index_of_a_later_version_is_never_damage() {
    let (disk, _) = journal(42, true).await;
    let segment = segments(&disk, 1).remove(0);
    let index = PathBuf::from("/data/journal/shard-01/index");
    for (file, header) in [(segment, 64), (index, 72)] {
        let name = file.to_str().unwrap();
        let later = disk.fork();
        set_version(&later, &file, 2, header);
        check_unsupported(&later, name, 2);
        // The rest of the header is another version's business.
        later.flip_bit(&file, 13 * 8);
        check_unsupported(&later, name, 2);
    }
}

#[tokio::test]
async fn a_version_that_the_checksum_proves_to_be_damaged_is_damage() {
    let (disk, _) = journal(43, true).await;
    let segment = segments(&disk, 1).remove(0);
    let damaged = disk.fork();
    damaged.flip_bit(&segment, 8 * 8 + 1);
    let report = examine(AT, &shared(&damaged)).unwrap();
    assert_eq!((report.problems.len(), report.lost_records), (1, Some(0)));
    assert!(segment.ends_with(&report.problems[0].file));
    assert_eq!(repair(AT, None, &shared(&damaged)).unwrap().unreadable, 0);
    disk.flip_bit("/data/journal/shard-01/index", 8 * 8 + 1);
    let report = examine(AT, &shared(&disk)).unwrap();
    assert!(report.sound, "an index can be done without: {:?}", report.problems);
    assert_eq!(report.remarks[0].file, "shard-01/index");
}

/// A disk that refuses the lock, and what else it is told to.
#[derive(Debug)]
struct Refusing {
    disk: SimDisk,
    kind: io::ErrorKind,
    refused: &'static [&'static str],
}

impl Refusing {
    fn check(&self, path: &Path) -> io::Result<()> {
        let is_refused = self.refused.iter().any(|name| path.ends_with(name));
        if is_refused { Err(self.kind.into()) } else { Ok(()) }
    }
}

impl Disk for Refusing {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.check(path)?;
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.disk.rename(from, to, replace)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.check(path)?;
        self.disk.lock(path)
    }

    fn lock_holder(&self, path: &Path) -> Option<u32> {
        self.disk.lock_holder(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.canonical(path)
    }
}

#[tokio::test]
async fn where_no_lock_can_be_written_a_journal_is_examined_without() {
    let (disk, _) = journal(44, true).await;
    let refusing = |kind, refused| -> Arc<dyn Disk> {
        Arc::new(Refusing { disk: disk.clone(), kind, refused })
    };
    for kind in [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied] {
        let report = examine(AT, &refusing(kind, &["lock"])).unwrap();
        assert!(report.sound, "{:?}", report.problems);
        let remark = &report.remarks[0];
        assert_eq!(remark.file, "lock");
        assert!(remark.what.contains("nobody guarantees"), "{remark:?}");
        assert!(repair(AT, None, &refusing(kind, &["lock"])).is_err());
        // That a file must not be read says nothing about what is in it.
        assert!(examine(AT, &refusing(kind, &["lock", "meta"])).is_err());
    }
    assert!(examine(AT, &refusing(io::ErrorKind::InvalidInput, &["lock"])).is_err());
    assert!(examine(AT, &shared(&disk)).unwrap().remarks.is_empty());
}

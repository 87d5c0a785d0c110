//! What a simulated disk does as any disk does; below, what a power cut leaves of it, and what can
//! be planned to go wrong on it.

mod crash;
mod plan;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::super::{Disk, DiskFile};
use super::SimDisk;

const NOTHING: u64 = SimDisk::NOTHING_KEPT;
const EVERYTHING: u64 = SimDisk::EVERYTHING_KEPT;
/// Enough seeds to see every kind of power cut many times.
const SEEDS: std::ops::Range<u64> = 0..2_000;

fn path(path: &str) -> &Path {
    Path::new(path)
}

/// A disk with a durable directory `/d`.
fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir(path("/d")).unwrap();
    disk
}

fn create(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.create(path(name)).unwrap();
    file.write_at(bytes, 0).unwrap();
    file
}

/// A disk with `/d/a`, which has these bytes; all of it is durable.
fn disk_with(bytes: &[u8]) -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = disk();
    let file = create(&disk, "/d/a", bytes);
    file.sync().unwrap();
    disk.sync_dir(path("/d")).unwrap();
    (disk, file)
}

fn names(disk: &SimDisk) -> Vec<String> {
    let mut names = disk.list(path("/d")).unwrap();
    names.sort();
    names
}

/// Everything that can be seen of a disk.
fn contents(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let files = disk.files().into_iter();
    files.map(|path| (path.display().to_string(), disk.read_file(&path))).collect()
}

#[test]
fn paths_lead_where_they_say() {
    let (disk, file) = disk_with(b"a");
    assert_eq!(disk.canonical(path("d/../d/./")).unwrap(), path("/d"));
    assert_eq!(disk.canonical(path("/x")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.canonical(path("/d/a")).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.create_dir(path("/d/a/b")).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.create(path("/x/a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.create(path("/d/a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(disk.open(path("/d/b")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.remove(path("/d")).unwrap_err().kind(), ErrorKind::IsADirectory);
    create(&disk, "/d/b", b"b");
    let taken = disk.rename(path("/d/a"), path("/d/b"), false).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let end = file.read_at(&mut [0; 2], 0).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(file.write_at(b"x", u64::MAX).unwrap_err().kind(), ErrorKind::FileTooLarge);
}

#[test]
fn a_removed_file_stays_readable_as_long_as_it_is_open() {
    let (disk, file) = disk_with(b"a");
    disk.remove(path("/d/a")).unwrap();
    disk.sync_dir(path("/d")).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 0).unwrap();
    assert_eq!(byte, *b"a");
    file.write_at(b"b", 0).unwrap();
    file.sync().unwrap();
}

#[test]
fn a_lock_is_held_once_and_is_free_after_its_guard() {
    let disk = disk();
    let lock = path("/d/lock");
    assert_eq!(disk.lock_holder(lock), None);
    let held = disk.lock(lock).unwrap().expect("nobody has it");
    assert!(disk.clone().lock(lock).unwrap().is_none());
    assert_eq!(disk.lock_holder(lock), Some(std::process::id()));
    assert!(disk.crash(EVERYTHING).lock(lock).unwrap().is_some());
    drop(held);
    assert!(disk.lock(lock).unwrap().is_some());
}

//! What can be planned to go wrong, and the back doors.

use std::io::{self, ErrorKind};

use super::super::super::Disk;
use super::{EVERYTHING, NOTHING, SEEDS, SimDisk, contents, create, disk, disk_with, names, path};

#[test]
fn what_a_failed_sync_lost_no_later_sync_brings_back() {
    let (disk, file) = disk_with(&[1; 2_000]);
    file.write_at(&[2; 1_000], 0).unwrap();
    disk.fail_sync_at(disk.syncs() + 1, ErrorKind::Other);
    file.sync().unwrap_err();
    assert_eq!(disk.read_file("/d/a")[..1_000], [2; 1_000], "it can still be read");
    file.sync().unwrap();
    assert!(SEEDS.into_iter().all(|seed| disk.crash(seed).read_file("/d/a") == [1; 2_000]));
    file.write_at(&[3; 500], 900).unwrap();
    assert_eq!(disk.read_file("/d/a")[..900], [2; 900]);
    let written = [vec![1; 900], vec![3; 500], vec![1; 600]].concat();
    assert!(disk.crash(EVERYTHING).read_file("/d/a") == written);
    file.sync().unwrap();
    assert!(disk.crash(NOTHING).read_file("/d/a") == written);
    assert!(disk.fork().crash(EVERYTHING).read_file("/d/a") == written);
}

#[test]
fn names_that_a_failed_sync_lost_no_later_sync_brings_back() {
    let disk = disk();
    create(&disk, "/d/a", b"a").sync().unwrap();
    disk.fail_sync_at(disk.syncs() + 1, ErrorKind::Other);
    disk.sync_dir(path("/d")).unwrap_err();
    create(&disk, "/d/b", b"b").sync().unwrap();
    disk.sync_dir(path("/d")).unwrap();
    assert_eq!(names(&disk), ["a", "b"]);
    assert_eq!(names(&disk.crash(EVERYTHING)), ["b"]);
}

#[test]
fn a_full_disk_writes_what_fits_and_is_free_again_when_a_file_goes() {
    let (disk, file) = disk_with(&[1; 600]);
    disk.capacity(1_000);
    let other = disk.create(path("/d/b")).unwrap();
    let error = other.write_at(&[2; 500], 0).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::StorageFull, Some(28)));
    assert_eq!(disk.read_file("/d/b"), [2; 400]);
    assert_eq!(disk.create(path("/d/c")).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_at(&[3; 600], 0).unwrap();
    assert!(file.write_at(&[3; 1], 600).is_err());
    disk.remove(path("/d/a")).unwrap();
    assert!(disk.create(path("/d/c")).is_err(), "it is open");
    assert!(disk.fork().create(path("/d/c")).is_ok(), "the end of a process closes its files");
    assert!(disk.crash(EVERYTHING).create(path("/d/c")).is_ok());
    drop(file);
    other.write_at(&[2; 1_000], 0).unwrap();
    assert!(disk.fork().create(path("/d/c")).is_err(), "a copy is as large");
}

#[test]
fn after_a_power_cut_every_call_fails_and_nothing_changes() {
    let (disk, file) = disk_with(b"a");
    let next = disk.operations() + 1;
    disk.power_cut_at(next + 1);
    file.write_at(b"b", 0).unwrap();
    file.read_at(&mut [0], 0).unwrap();
    let before = disk.fork();
    assert!(!disk.power_is_cut());
    file.sync().unwrap_err();
    assert!(disk.power_is_cut());
    let results: [io::Result<()>; 11] = [
        file.write_at(b"c", 0),
        file.sync(),
        file.read_at(&mut [0], 0),
        file.len().map(drop),
        disk.create(path("/d/c")).map(drop),
        disk.open(path("/d/a")).map(drop),
        disk.rename(path("/d/a"), path("/d/c"), true),
        disk.remove(path("/d/a")),
        disk.sync_dir(path("/d")),
        disk.create_dir(path("/e")),
        disk.lock(path("/d/a")).map(drop),
    ];
    assert!(results.iter().all(io::Result::is_err), "{results:?}");
    assert!(disk.list(path("/d")).is_err() && disk.canonical(path("/d")).is_err());
    assert_eq!(disk.operations(), next);
    for seed in SEEDS {
        assert_eq!(contents(&disk.crash(seed)), contents(&before.crash(seed)));
    }
    assert!(disk.crash(NOTHING).open(path("/d/a")).is_ok(), "the power is back");
}

#[test]
fn the_power_can_be_cut_at_once() {
    let (disk, file) = disk_with(b"a");
    disk.power_cut_at(0);
    file.read_at(&mut [0], 0).unwrap_err();
}

#[test]
fn an_operation_can_fail_once_and_does_nothing() {
    let (disk, file) = disk_with(b"a");
    disk.fail_operation_at(disk.operations() + 1, ErrorKind::PermissionDenied);
    disk.fail_operation_at(disk.operations() + 2, ErrorKind::Other);
    let error = disk.remove(path("/d/a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(names(&disk), ["a"]);
    file.sync().unwrap_err();
    disk.remove(path("/d/a")).unwrap();
}

#[test]
fn reads_fail_where_it_is_planned_under_whatever_name_a_file_has() {
    let (disk, file) = disk_with(b"a");
    disk.fail_reads("bad");
    file.read_at(&mut [0], 0).unwrap();
    disk.rename(path("/d/a"), path("/d/bad-1"), false).unwrap();
    assert_eq!(file.read_at(&mut [0], 0).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(disk.read_file("/d/bad-1"), b"a");
}

#[test]
fn bits_and_lengths_can_be_changed_for_good() {
    let disk = SimDisk::new();
    disk.power_cut_at(0);
    disk.write_file("/d/e/a", [0; 5_000]);
    disk.flip_bit("/d/e/a", 8 * 4_500 + 3);
    let disk = disk.crash(NOTHING);
    let bytes = disk.read_file("/d/e/a");
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == if at == 4_500 { 8 } else { 0 }));
    disk.truncate("/d/e/a", 4_501);
    disk.write_file("/d/e/b", b"b");
    let disk = disk.crash(NOTHING);
    assert_eq!(disk.read_file("/d/e/a").len(), 4_501);
    disk.write_file("/d/e/a", b"short");
    assert_eq!(disk.crash(NOTHING).read_file("/d/e/a"), b"short");
    assert_eq!(disk.files(), [path("/d/e/a"), path("/d/e/b")]);
}

//! What a power cut leaves, and what the end of a process leaves.

use std::collections::BTreeSet;

use super::super::super::Disk;
use super::{EVERYTHING, NOTHING, SEEDS, SimDisk, contents, create, disk, disk_with, names, path};

#[test]
fn a_file_that_was_not_synced_leaves_nothing() {
    let disk = disk();
    create(&disk, "/d/a", b"bytes");
    assert!(disk.crash(NOTHING).files().is_empty());
    assert_eq!(disk.crash(EVERYTHING).read_file("/d/a"), b"bytes");
    assert_eq!(disk.read_file("/d/a"), b"bytes", "the disk itself goes on");
}

#[test]
fn a_synced_file_whose_name_is_not_durable_is_lost() {
    let disk = disk();
    create(&disk, "/d/a", b"bytes").sync().unwrap();
    assert!(disk.crash(NOTHING).files().is_empty());
    disk.sync_dir(path("/d")).unwrap();
    assert_eq!(disk.crash(NOTHING).read_file("/d/a"), b"bytes");
}

#[test]
fn a_rename_that_was_not_synced_is_undone() {
    let disk = disk();
    create(&disk, "/d/tmp", b"bytes").sync().unwrap();
    disk.sync_dir(path("/d")).unwrap();
    disk.rename(path("/d/tmp"), path("/d/a"), false).unwrap();
    assert_eq!(names(&disk.crash(NOTHING)), ["tmp"]);
    assert_eq!(disk.crash(NOTHING).read_file("/d/tmp"), b"bytes");
    assert_eq!(names(&disk.crash(EVERYTHING)), ["a"]);
    for seed in SEEDS {
        assert_eq!(names(&disk.crash(seed)).len(), 1, "a rename is one step");
    }
}

#[test]
fn a_durable_name_of_bytes_that_were_not_synced_has_none() {
    let disk = disk();
    create(&disk, "/d/tmp", b"bytes");
    disk.rename(path("/d/tmp"), path("/d/a"), false).unwrap();
    disk.sync_dir(path("/d")).unwrap();
    assert_eq!(names(&disk.crash(NOTHING)), ["a"]);
    assert_eq!(disk.crash(NOTHING).read_file("/d/a"), b"");
}

#[test]
fn a_removal_that_was_not_synced_is_undone() {
    let (disk, file) = disk_with(b"bytes");
    disk.remove(path("/d/a")).unwrap();
    drop(file);
    assert!(names(&disk).is_empty());
    assert_eq!(disk.crash(NOTHING).read_file("/d/a"), b"bytes");
    assert!(disk.crash(EVERYTHING).files().is_empty());
    disk.sync_dir(path("/d")).unwrap();
    assert!(SEEDS.into_iter().all(|seed| disk.crash(seed).files().is_empty()));
}

#[test]
fn what_can_come_back_is_kept_whatever_else_is_synced() {
    let (disk, file) = disk_with(b"bytes");
    drop(file);
    disk.remove(path("/d/a")).unwrap();
    drop(create(&disk, "/d/b", b""));
    disk.remove(path("/d/b")).unwrap();
    disk.create_dir(path("/e")).unwrap();
    let seen: BTreeSet<_> = SEEDS.map(|seed| names(&disk.crash(seed))).collect();
    let expected = [vec!["a".to_owned()], vec![], vec!["b".to_owned()]];
    assert_eq!(seen, expected.into());
}

#[test]
fn a_replaced_file_comes_back_if_the_directory_was_not_synced() {
    let (disk, _) = disk_with(b"old");
    create(&disk, "/d/tmp", b"new").sync().unwrap();
    disk.rename(path("/d/tmp"), path("/d/a"), true).unwrap();
    assert_eq!(disk.read_file("/d/a"), b"new");
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        seen.insert(contents(&disk.crash(seed)));
    }
    let old = ("/d/a".to_owned(), b"old".to_vec());
    let new = ("/d/a".to_owned(), b"new".to_vec());
    let tmp = ("/d/tmp".to_owned(), b"new".to_vec());
    assert_eq!(seen, [vec![old.clone()], vec![old, tmp], vec![new]].into());
}

#[test]
fn a_move_to_another_directory_needs_both_to_be_synced() {
    let (disk, _) = disk_with(b"bytes");
    disk.create_dir(path("/e")).unwrap();
    disk.rename(path("/d/a"), path("/e/a"), false).unwrap();
    let both = disk.fork();
    both.sync_dir(path("/e")).unwrap();
    assert_eq!(both.crash(NOTHING).files(), [path("/d/a"), path("/e/a")]);
    both.sync_dir(path("/d")).unwrap();
    assert_eq!(both.crash(NOTHING).files(), [path("/e/a")]);
    disk.sync_dir(path("/d")).unwrap();
    assert!(disk.crash(NOTHING).files().is_empty());
}

#[test]
fn changes_of_names_are_kept_in_their_order() {
    let disk = disk();
    for name in ["/d/0", "/d/1", "/d/2", "/d/3"] {
        create(&disk, name, b"");
    }
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let names = names(&disk.crash(seed));
        assert!(names.iter().enumerate().all(|(at, name)| *name == at.to_string()), "{names:?}");
        seen.insert(names.len());
    }
    assert_eq!(seen, (0..=4).collect());
}

#[test]
fn a_directory_is_durable_once_it_is_made() {
    let disk = SimDisk::new();
    disk.create_dir(path("/a/b/c")).unwrap();
    assert_eq!(disk.operations(), 6, "to make one and to sync the one above, each");
    assert!(disk.crash(NOTHING).list(path("/a/b/c")).unwrap().is_empty());
}

#[test]
fn a_directory_that_was_left_half_made_is_made_durable_by_the_next_who_makes_it() {
    let disk = SimDisk::new();
    disk.power_cut_at(2);
    disk.create_dir(path("/a")).unwrap_err();
    let next = disk.fork();
    assert!(next.crash(NOTHING).list(path("/a")).is_err());
    next.create_dir(path("/a/b")).unwrap();
    assert!(next.crash(NOTHING).list(path("/a/b")).is_ok());
}

#[test]
fn the_same_seed_leaves_the_same_disk() {
    let (disk, file) = disk_with(&[1; 10_000]);
    file.write_at(&[2; 7_000], 5_000).unwrap();
    create(&disk, "/d/b", &[3; 2_000]);
    disk.remove(path("/d/a")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let image = contents(&disk.crash(seed));
        assert!(image == contents(&disk.crash(seed)), "seed {seed}");
        seen.insert(image);
    }
    assert!(seen.len() > 300, "{} different disks", seen.len());
}

#[test]
fn a_power_cut_keeps_or_loses_whole_sectors() {
    let (disk, file) = disk_with(&[1; 4_096]);
    // It begins and ends in the middle of a sector, and makes the file longer.
    file.write_at(&[2; 5_000], 700).unwrap();
    let sectors = 512..5_700;
    let (mut lengths, mut subsets, mut is_bare) = (BTreeSet::new(), BTreeSet::new(), false);
    for seed in SEEDS {
        let bytes = disk.crash(seed).read_file("/d/a");
        assert!(bytes[..700].iter().all(|byte| *byte == 1), "what was not written to is as it was");
        let mut subset = Vec::new();
        for start in sectors.clone().step_by(512) {
            let end = (start + 512).min(bytes.len());
            let written = bytes.get(start.max(700)..end).unwrap_or_default();
            let old = if start < 4_096 { 1 } else { 0 };
            let is_kept = written.first() == Some(&2);
            let byte = if is_kept { 2 } else { old };
            assert!(written.iter().all(|other| *other == byte), "seed {seed}, sector at {start}");
            subset.push(is_kept);
        }
        assert!(bytes.len() >= 4_096 && bytes.len() <= 5_700);
        lengths.insert(bytes.len());
        is_bare |= bytes.len() == 5_700 && bytes[5_632..] == [0; 68];
        subsets.insert(subset);
    }
    assert!(is_bare, "the length can be there without the bytes");
    assert_eq!(lengths, [4_096, 4_608, 5_120, 5_632, 5_700].into());
    assert!(subsets.len() > 200, "{} different subsets of eleven sectors", subsets.len());
    assert!(subsets.contains(&vec![true; 11]) && subsets.contains(&vec![false; 11]));
    let is_gap = |kept: &Vec<bool>| kept.iter().filter(|kept| !**kept).count() == 1 && kept[10];
    assert!(subsets.iter().any(is_gap), "a later one can be there without an earlier one");
}

#[test]
fn a_sector_that_was_written_twice_has_the_first_write_if_it_has_the_second() {
    let (disk, file) = disk_with(&[0; 512]);
    file.write_at(b"one", 0).unwrap();
    file.write_at(b"two", 3).unwrap();
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        seen.insert(disk.crash(seed).read_file("/d/a")[..6].to_vec());
    }
    let expected = [*b"\0\0\0\0\0\0", *b"one\0\0\0", *b"onetwo"];
    assert_eq!(seen, expected.into_iter().map(Vec::from).collect());
}

#[test]
fn what_was_synced_survives_every_power_cut() {
    let (disk, file) = disk_with(&[1; 3_000]);
    file.write_at(&[2; 3_000], 2_000).unwrap();
    file.sync().unwrap();
    file.write_at(&[3; 100], 5_000).unwrap();
    for seed in SEEDS {
        let bytes = disk.crash(seed).read_file("/d/a");
        assert!(bytes[..2_000] == [1; 2_000] && bytes[2_000..5_000] == [2; 3_000], "seed {seed}");
    }
}

#[test]
fn a_crash_is_a_disk_on_which_everything_is_durable() {
    let (disk, file) = disk_with(&[1; 3_000]);
    file.write_at(&[2; 9_000], 1_000).unwrap();
    create(&disk, "/d/b", b"b");
    for seed in SEEDS {
        let once = disk.crash(seed);
        assert!(contents(&once) == contents(&once.crash(NOTHING)), "seed {seed}");
    }
}

#[test]
fn a_fork_sees_all_and_has_made_nothing_durable() {
    let (disk, file) = disk_with(b"old");
    file.write_at(b"new", 0).unwrap();
    create(&disk, "/d/b", b"b");
    let lock = disk.lock(path("/d/lock")).unwrap();
    assert!(lock.is_some() && disk.lock(path("/d/lock")).unwrap().is_none());
    let fork = disk.fork();
    assert_eq!(contents(&fork), contents(&disk));
    assert_eq!(contents(&fork.crash(NOTHING)), [("/d/a".to_owned(), b"old".to_vec())]);
    assert!(fork.lock(path("/d/lock")).unwrap().is_some(), "the end of a process frees its locks");
    assert_eq!(fork.operations(), 0);
    fork.open(path("/d/a")).unwrap().write_at(b"other", 0).unwrap();
    assert_eq!(disk.read_file("/d/a"), b"new");
    let fork = fork.fork();
    fork.open(path("/d/a")).unwrap().sync().unwrap();
    assert_eq!(fork.crash(NOTHING).read_file("/d/a"), b"other");
}

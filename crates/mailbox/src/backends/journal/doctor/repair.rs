//! Saving what can be read of a journal. Invariant: the damaged journal is never written to; at
//! every moment it is all there under its own name or under that of its copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backends::journal::disk::Disk;
use crate::backends::journal::doctor::files::folder_name;
use crate::backends::journal::doctor::report::Repaired;
use crate::backends::journal::doctor::write::{settle_names, write_log, write_meta};
use crate::backends::journal::doctor::{Found, Need, examine};
use crate::backends::journal::opening::META;
use crate::backends::journal::shard::recover::io_error;
use crate::error::{Error, ErrorKind, Result};

/// Copies that are kept beside a journal.
const COPIES_MAX: u32 = 1000;
/// What is added to the name of a journal while its successor is made.
const REPAIRING: &str = ".repairing";

/// Puts together a new journal out of everything that can be read of a damaged one.
///
/// With `into`, the new journal goes into that directory, which must be empty or not there, and
/// nothing else changes. Without, it takes the place of the damaged one, which gets another name
/// beside it: `PATH.damaged-1`, or the first number that is free.
///
/// Messages that are known but cannot be read become dead letters with the reason `integrity`;
/// their last error says where they were.
///
/// # Errors
/// As `examine`; `InvalidParameter` if `into` is not empty; `Saturated` if the
/// disk is full. Then the damaged journal is as it was.
/// A repair that was cut short at its very end is finished, and nothing else is done; what is then
/// returned counts what is there.
pub fn repair(
    path: impl AsRef<Path>,
    into: Option<&Path>,
    disk: &Arc<dyn Disk>,
) -> Result<Repaired> {
    let path = path.as_ref();
    if into.is_none()
        && let Some(repaired) = finish_earlier(path, disk)?
    {
        return Ok(repaired);
    }
    let mut found = Found::open(path, disk, Need::Save)?;
    let own = beside(&found.path, REPAIRING);
    let target = match into {
        Some(into) => {
            check_empty(disk, into)?;
            into.to_owned()
        }
        None => {
            clear(disk, &own, found.meta.shards)?;
            own
        }
    };
    disk.create_dir(&target).map_err(|error| io_error(&target, error))?;
    let mut repaired = Repaired {
        path: target.clone(),
        original: found.path.clone(),
        mailboxes: 0,
        messages: 0,
        unreadable: 0,
        keys: 0,
        lost_records: found.findings.lost_records(),
        renamed: Vec::new(),
        new_secret: found.new_secret,
    };
    settle_names(&mut found.shards, &mut repaired);
    for (folder, log) in found.shards {
        write_log(&target, &found.meta, &folder, log, &mut repaired)?;
    }
    write_meta(disk, &target, &found.meta)?;
    if into.is_none() {
        let copy = exchange(disk, &found.path, &target)?;
        (repaired.path, repaired.original) = (found.path, copy);
    }
    drop(found.lock);
    Ok(repaired)
}

/// The damaged journal gets another name, and the new one its name.
fn exchange(disk: &Arc<dyn Disk>, path: &Path, new: &Path) -> Result<PathBuf> {
    let above = path.parent().unwrap_or(path);
    let copy = (1..=COPIES_MAX).map(|number| beside(path, &format!(".damaged-{number}"))).find_map(
        |copy| match disk.rename(path, &copy, false) {
            Err(error) if is_taken(&error) => None,
            Err(error) => Some(Err(io_error(&copy, error))),
            Ok(()) => Some(Ok(copy)),
        },
    );
    let Some(copy) = copy else {
        let message = format!("there are {COPIES_MAX} damaged copies beside {}", path.display());
        return Err(Error::new(ErrorKind::Saturated, message));
    };
    let copy = copy?;
    disk.rename(new, path, false).map_err(|error| io_error(path, error))?;
    disk.sync_dir(above).map_err(|error| io_error(above, error))?;
    Ok(copy)
}

/// A repair that was cut short between the two renames has done its work: the rest is a name.
fn finish_earlier(path: &Path, disk: &Arc<dyn Disk>) -> Result<Option<Repaired>> {
    let is_gone = disk.list(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    let own = beside(path, REPAIRING);
    let is_complete = disk.list(&own).is_ok_and(|names| names.iter().any(|name| name == META));
    if !is_gone || !is_complete {
        return Ok(None);
    }
    // It may be the work of a later version, which is left alone.
    examine(&own, disk)?;
    disk.rename(&own, path, false).map_err(|error| io_error(path, error))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    disk.sync_dir(above).map_err(|error| io_error(above, error))?;
    let report = examine(path, disk)?;
    let copies = (1..=COPIES_MAX).map(|number| beside(path, &format!(".damaged-{number}")));
    let original = copies.take_while(|copy| disk.list(copy).is_ok()).last();
    let mailboxes = || report.shards.iter().flat_map(|shard| &shard.mailboxes);
    Ok(Some(Repaired {
        path: report.path.clone(),
        original: original.unwrap_or_else(|| report.path.clone()),
        mailboxes: mailboxes().count() as u64,
        messages: mailboxes().map(|mailbox| mailbox.live + mailbox.dead).sum(),
        unreadable: 0,
        keys: mailboxes().map(|mailbox| mailbox.keys).sum(),
        // Whoever counted them is gone.
        lost_records: None,
        renamed: Vec::new(),
        new_secret: false,
    }))
}

fn is_taken(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty)
}

/// The path with something added to its last name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn check_empty(disk: &Arc<dyn Disk>, into: &Path) -> Result<()> {
    let names = match disk.list(into) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(|error| io_error(into, error))?,
    };
    let is_used = disk.list(&into.join(folder_name(0))).is_ok();
    if is_used || !names.is_empty() {
        let message = format!("{} is not empty", into.display());
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("into"));
    }
    Ok(())
}

/// Removes what a repair has left behind that was cut short. It is never the only copy: the damaged
/// journal is still there.
fn clear(disk: &Arc<dyn Disk>, own: &Path, shards: u16) -> Result<()> {
    let folders = (0..shards.max(64)).map(|shard| own.join(folder_name(shard)));
    for dir in std::iter::once(own.to_owned()).chain(folders) {
        let names = match disk.list(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            listed => listed.map_err(|error| io_error(&dir, error))?,
        };
        for name in names {
            let path = dir.join(name);
            disk.remove(&path).map_err(|error| io_error(&path, error))?;
        }
    }
    Ok(())
}

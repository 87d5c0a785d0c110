//! The file system of the machine. Whatever is made here is private to its owner, and a name that
//! turns out to be a symbolic link is not followed.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::{Disk, DiskFile, Lock};

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Most names that are listed; a directory with more of them is not ours.
const LIST_MAX: usize = 1 << 20;
/// Longest process id in a lock file that is looked at.
const PID_LEN_MAX: usize = 16;

/// The file system of the machine.
#[derive(Debug, Clone, Default)]
pub struct RealDisk {
    slow_sync: Duration,
}

impl RealDisk {
    /// The file system of the machine.
    #[must_use]
    pub const fn new() -> Self {
        Self { slow_sync: Duration::ZERO }
    }

    /// As if every sync of a file took this much longer: a slow disk, for measurements.
    #[must_use]
    pub const fn with_slow_sync(slow_sync: Duration) -> Self {
        Self { slow_sync }
    }

    fn file(&self, file: File) -> Arc<dyn DiskFile> {
        Arc::new(RealFile { file, slow_sync: self.slow_sync })
    }
}

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut there = path;
        while let Err(error) = fs::metadata(there) {
            let above = parent_of(there);
            if error.kind() != io::ErrorKind::NotFound || above == there {
                return Err(error);
            }
            missing.push(there);
            there = above;
        }
        is_directory(there)?;
        // Whoever made the lowest of those that are there may have died before its name was
        // durable.
        match self.sync_dir(parent_of(there)) {
            Err(error) if !is_foreign(&error) => return Err(error),
            _ => {}
        }
        for made in missing.into_iter().rev() {
            match DirBuilder::new().mode(DIR_MODE).create(made) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => is_directory(made)?,
            }
            self.sync_dir(parent_of(made))?;
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if !kind.is_file() && !kind.is_symlink() {
                continue;
            }
            // We never make a name that is not UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if names.len() == LIST_MAX {
                return Err(io::Error::other(format!("more than {LIST_MAX} files")));
            }
            names.push(name);
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = options().create_new(true).open(path)?;
        Ok(self.file(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(regular(options().open(path)?)?))
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        if replace { fs::rename(from, to) } else { rename_new(from, to) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let flags = OFlags::DIRECTORY.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let file = regular(options().create(true).truncate(false).open(path)?)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let lock = RealLock { file };
        lock.sign();
        Ok(Some(Box::new(lock)))
    }

    fn lock_holder(&self, path: &Path) -> Option<u32> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let mut text = [0; PID_LEN_MAX];
        let len = regular(file).ok()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.trim_end().parse().ok()
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    slow_sync: Duration,
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Syncs the data only. That includes the length where the data needs it to be read again, and
    /// leaves out the times of the file, which nobody asks for.
    fn sync(&self) -> io::Result<()> {
        if !self.slow_sync.is_zero() {
            thread::sleep(self.slow_sync);
        }
        self.file.sync_data()
    }
}

#[derive(Debug)]
struct RealLock {
    file: File,
}

impl RealLock {
    /// Writes down who has it. The lock holds without that too, for example on a full disk.
    fn sign(&self) {
        let pid = format!("{}\n", std::process::id());
        let _ = self.file.set_len(0).and_then(|()| self.file.write_all_at(pid.as_bytes(), 0));
    }
}

impl Lock for RealLock {}

impl Drop for RealLock {
    /// Closing would be enough, were there not children that this process is just starting: until
    /// they are something else they have the file open as well.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// How files are opened: for reading and writing, and a symbolic link or a pipe neither leads
/// elsewhere nor blocks.
fn options() -> OpenOptions {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(FILE_MODE).custom_flags(flags);
    options
}

/// The file, if it is one, and not a directory, a pipe or a device.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

fn is_directory(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Whether a directory cannot be synced because it is none that we could have made anything in.
fn is_foreign(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported)
}

/// The directory that has the name of `path`.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Renames in one step, and only if the new name is free.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;

    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The kernel or this file system does not know how.
        Err(Errno::INVAL | Errno::NOSYS) => link_new(from, to),
        result => Ok(result?),
    }
}

/// Renames in two steps, and only if the new name is free.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    link_new(from, to)
}

/// A new name first, and then the old one goes: whoever dies in between leaves a file with both.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn directory() -> (tempfile::TempDir, RealDisk) {
        (tempfile::tempdir().unwrap(), RealDisk::new())
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn write(disk: &RealDisk, path: &Path, bytes: &[u8]) {
        disk.create(path).unwrap().write_at(bytes, 0).unwrap();
    }

    #[test]
    fn a_rename_without_replace_takes_no_name_that_is_taken() {
        for rename in [rename_new, link_new] {
            let (root, disk) = directory();
            let [a, b, c] = ["a", "b", "c"].map(|name| root.path().join(name));
            write(&disk, &a, b"a");
            write(&disk, &b, b"b");
            assert_eq!(rename(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (vec![b'a'], vec![b'b']));
            rename(&a, &c).unwrap();
            assert_eq!(fs::read(&c).unwrap(), b"a");
            assert_eq!(rename(&a, &c).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_rename_with_replace_takes_a_name_over() {
        let (root, disk) = directory();
        let [a, b] = ["a", "b"].map(|name| root.path().join(name));
        write(&disk, &a, b"a");
        write(&disk, &b, b"b");
        let error = disk.rename(&a, &b, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        disk.rename(&a, &b, true).unwrap();
        assert_eq!(disk.list(root.path()).unwrap(), ["b"]);
        assert_eq!(fs::read(&b).unwrap(), b"a");
    }

    #[test]
    fn a_lock_is_held_once_and_is_free_after_its_guard() {
        let (root, disk) = directory();
        let path = root.path().join("lock");
        assert_eq!(disk.lock_holder(&path), None);
        let held = disk.lock(&path).unwrap().expect("nobody has it");
        assert!(disk.lock(&path).unwrap().is_none());
        assert!(RealDisk::new().lock(&path).unwrap().is_none());
        assert_eq!(disk.lock_holder(&path), Some(std::process::id()));
        assert_eq!(mode(&path), FILE_MODE);
        drop(held);
        assert!(disk.lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_lock_file_with_anything_in_it_names_no_holder_and_can_be_locked() {
        let (root, disk) = directory();
        let path = root.path().join("lock");
        for bytes in [&b""[..], b"-1", b"\xff\xfe", b"99999999999999999999", &[b'1'; 4096]] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(disk.lock_holder(&path), None, "{bytes:?}");
            let _held = disk.lock(&path).unwrap().expect("nobody has it");
            assert_eq!(disk.lock_holder(&path), Some(std::process::id()));
        }
    }

    #[test]
    fn a_list_has_the_files_and_the_links_and_nothing_else() {
        let (root, disk) = directory();
        let file = root.path().join("file");
        write(&disk, &file, b"");
        symlink(&file, root.path().join("link")).unwrap();
        fs::create_dir(root.path().join("directory")).unwrap();
        let mut names = disk.list(root.path()).unwrap();
        names.sort();
        assert_eq!(names, ["file", "link"]);
        let error = disk.list(&root.path().join("nowhere")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_made_is_private_to_its_owner() {
        let (root, disk) = directory();
        let deep = root.path().join("a/b/c");
        disk.create_dir(&deep).unwrap();
        disk.create_dir(&deep).unwrap();
        for above in ["a", "a/b", "a/b/c"] {
            assert_eq!(mode(&root.path().join(above)), DIR_MODE);
        }
        write(&disk, &deep.join("file"), b"x");
        assert_eq!(mode(&deep.join("file")), FILE_MODE);
        let error = disk.create_dir(&deep.join("file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        assert!(disk.create_dir(&deep.join("file/below")).is_err());
        assert!(disk.create_dir(Path::new("")).is_err());
        symlink(deep.join("nowhere"), deep.join("dangling")).unwrap();
        assert!(disk.create_dir(&deep.join("dangling")).is_err());
    }

    #[test]
    fn links_directories_and_devices_are_not_opened() {
        let (root, disk) = directory();
        let [file, link] = ["file", "link"].map(|name| root.path().join(name));
        write(&disk, &file, b"x");
        symlink(&file, &link).unwrap();
        assert!(disk.open(&link).is_err());
        assert!(disk.lock(&link).is_err());
        assert!(disk.create(&link).is_err());
        assert!(disk.open(root.path()).is_err());
        let error = disk.open(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_was_written_is_read_and_a_read_past_the_end_is_an_error() {
        let (root, _) = directory();
        let disk = RealDisk::with_slow_sync(Duration::from_nanos(1));
        let path = root.path().join("file");
        let file = disk.create(&path).unwrap();
        assert_eq!(disk.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        file.write_at(b"tail", 10).unwrap();
        file.sync().unwrap();
        disk.sync_dir(root.path()).unwrap();
        let file = disk.open(&path).unwrap();
        let mut buffer = [1; 14];
        file.read_at(&mut buffer, 0).unwrap();
        assert_eq!((&buffer[..10], &buffer[10..]), (&[0; 10][..], &b"tail"[..]));
        assert_eq!(file.len().unwrap(), 14);
        let error = file.read_at(&mut buffer, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        disk.remove(&path).unwrap();
        assert_eq!(disk.open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        file.read_at(&mut buffer, 0).unwrap();
    }
}

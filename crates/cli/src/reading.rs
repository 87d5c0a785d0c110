//! The machine's disk, for looking at journals that cannot be written. Invariant: a file is opened
//! in another way than the journal does it only where the file system refuses writing.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mailbox::backends::journal::disk::{Disk, DiskFile, Lock, RealDisk};

/// The machine's disk. Where files cannot be opened for writing, they are opened for reading.
#[derive(Debug, Default)]
pub(crate) struct ReadingDisk {
    disk: RealDisk,
}

impl Disk for ReadingDisk {
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
        or_to_read(self.disk.open(path), path)
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
        self.disk.lock(path)
    }

    fn lock_holder(&self, path: &Path) -> Option<u32> {
        self.disk.lock_holder(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.canonical(path)
    }
}

/// What was opened; or the file for reading only, if writing is what was refused.
fn or_to_read(opened: io::Result<Arc<dyn DiskFile>>, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
    let refused = match opened {
        Err(error) if is_refusal(error.kind()) => error,
        opened => return opened,
    };
    // As everywhere else, neither links nor anything that is no file.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(refused);
    }
    Ok(Arc::new(FileToRead { file: File::open(path)? }))
}

const fn is_refusal(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// A file that cannot be written.
#[derive(Debug)]
struct FileToRead {
    file: File,
}

impl DiskFile for FileToRead {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: io::ErrorKind) -> io::Result<Arc<dyn DiskFile>> {
        Err(kind.into())
    }

    #[test]
    fn what_cannot_be_written_is_opened_for_reading() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "hello").unwrap();
        for kind in [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied] {
            let file = or_to_read(refused(kind), &path).unwrap();
            let mut bytes = [0; 4];
            file.read_at(&mut bytes, 1).unwrap();
            assert_eq!((&bytes, file.len().unwrap()), (b"ello", 5));
            assert!(file.write_at(b"x", 0).is_err());
        }
        assert_eq!(fs::read(&path).unwrap(), b"hello");
    }

    #[test]
    fn other_refusals_and_links_stay_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&path, "hello").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = or_to_read(refused(io::ErrorKind::InvalidInput), &path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(or_to_read(refused(io::ErrorKind::PermissionDenied), &link).is_err());
    }
}

//! Where the files are. `MAILBOX_BENCH_DIR` if it is set. Otherwise an ext4 with a journal on a
//! loop device, made for this run, where one can be mounted: the same on every machine. Otherwise
//! the folder of this program. Everything made here is taken away again, also after a panic.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Room for a million messages twice, and for what the peers write.
const IMAGE_LEN: u64 = 4 * 1024 * 1024 * 1024;
const CHUNK: usize = 1024 * 1024;
/// Folders of runs start with this and end with the number of the process.
const PREFIX: &str = "journal-bench-";

/// A folder for this run, and what it is on.
#[derive(Debug)]
pub(crate) struct Place {
    /// Below which everything is made.
    root: PathBuf,
    /// What is left to be removed at the end.
    own: PathBuf,
    /// The file behind the loop device, if it is one.
    image: Option<PathBuf>,
}

impl Place {
    /// Finds one.
    pub(crate) fn find() -> Self {
        let chosen = std::env::var_os("MAILBOX_BENCH_DIR").map(PathBuf::from);
        let program = std::env::current_exe().expect("a running program has a path");
        let base = chosen.as_deref().or(program.parent()).expect("a program is in a folder");
        remove_left_behind(base);
        let own = base.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&own).expect("the folder for the journal can be made");
        let mut place = Self { root: own.clone(), own, image: None };
        if chosen.is_none() {
            place.mount();
        }
        place
    }

    /// A new folder, removed with all there is in it when it is dropped.
    pub(crate) fn folder(&self, name: &str) -> Folder {
        let path = self.root.join(name);
        std::fs::create_dir(&path).expect("no part uses a name twice at a time");
        Folder { path }
    }

    /// Lets the disk finish what others have left to it, so that nobody pays for somebody else.
    pub(crate) fn rest(&self) {
        let root = File::open(&self.root).expect("the folder is there");
        #[cfg(target_os = "linux")]
        rustix::fs::syncfs(&root).expect("a file system can be synced");
        #[cfg(not(target_os = "linux"))]
        root.sync_all().expect("a folder can be synced");
    }

    /// Makes the page cache forget the files of a folder, so that reading them means the disk.
    pub(crate) fn cool(&self, folder: &Path) {
        for file in files(folder) {
            forget(&file).expect("a file of the bench can be synced");
        }
        // The loop device reads through the cache of the file behind it.
        if let Some(image) = &self.image {
            forget(image).expect("the image can be synced");
        }
    }

    /// Stays as it is if anything goes wrong: without rights there is no loop device.
    fn mount(&mut self) {
        let image = self.own.join("image");
        let root = self.own.join("mounted");
        let made = File::create_new(&image)
            .and_then(|file| file.set_len(IMAGE_LEN))
            .and_then(|()| std::fs::create_dir(&root))
            .and_then(|()| {
                let options = "lazy_itable_init=0,lazy_journal_init=0";
                done(Command::new("mkfs.ext4").args(["-q", "-F", "-E", options]).arg(&image))
            })
            .and_then(|()| mount_image(&image, &root))
            // Now that it is known to work, it is worth the time.
            .and_then(|()| done(Command::new("umount").arg(&root)))
            .and_then(|()| write_again(&image))
            .and_then(|()| mount_image(&image, &root));
        if made.is_ok() {
            (self.root, self.image) = (root, Some(image));
        } else {
            std::fs::remove_file(image).ok();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        take_away(&self.own);
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = file_system(&self.root);
        let device = if self.image.is_some() { ", on a loop device" } else { "" };
        write!(f, "{kind}{device}, {}", self.root.display())
    }
}

/// A folder of one part.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).ok();
    }
}

/// A new file of so many zeros that are on the disk: writing to it changes no metadata, and blocks
/// need not be found any more.
pub(crate) fn zeros(path: &Path, len: u64) -> io::Result<File> {
    let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
    let chunk = vec![0; CHUNK];
    let mut left = len;
    while left > 0 {
        let part = left.min(CHUNK as u64);
        file.write_all(&chunk[..part as usize])?;
        left -= part;
    }
    file.sync_all()?;
    Ok(file)
}

/// Writes to every block of an image, also to those that nothing but a hole stands for. The first
/// write to a hole makes the image grow, and whoever changes metadata with every sync would pay for
/// that far more than whoever does not; a disk does nothing of the kind.
fn write_again(image: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(image)?;
    let len = file.metadata()?.len();
    let mut chunk = vec![0; CHUNK];
    for at in (0..len).step_by(CHUNK) {
        let part = &mut chunk[..(len - at).min(CHUNK as u64) as usize];
        file.read_exact_at(part, at)?;
        file.write_all_at(part, at)?;
    }
    file.sync_all()
}

fn mount_image(image: &Path, root: &Path) -> io::Result<()> {
    done(Command::new("mount").args(["-o", "loop"]).args([image, root]))
}

/// The files of a folder, and of those in it, by name.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // Whoever works in there may remove what was just listed.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// The type that `/proc/mounts` gives for the innermost mount above a path.
fn file_system(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (PathBuf::from(fields.next()?), fields.next()?.to_owned());
        path.starts_with(&point).then(|| (point.components().count(), kind))
    };
    // The last of equals hides the others.
    let innermost = mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth);
    innermost.map_or_else(|| "unknown file system".to_owned(), |(_, kind)| kind)
}

/// What a run that was killed could not take away.
fn remove_left_behind(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let is_running = Path::new("/proc").join(number).exists();
        if Path::new("/proc/self").exists() && !is_running {
            take_away(&entry.path());
        }
    }
}

fn take_away(own: &Path) {
    let mounted = own.join("mounted");
    // After a panic threads may still have files open; then it goes when they do.
    if mounted.exists() && done(Command::new("umount").arg(&mounted)).is_err() {
        done(Command::new("umount").arg("-l").arg(&mounted)).ok();
    }
    std::fs::remove_dir_all(own).ok();
}

fn done(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() { Ok(()) } else { Err(io::Error::other("it did not succeed")) }
}

//! File systems of our own: ext4 in a file, and small ones in memory. Invariant: what was mounted
//! is unmounted and removed when the value goes, whatever else has gone wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::report::{NotRun, say};
use crate::scene::Folder;

/// How long whoever uses the file system has to let go of it.
const LETS_GO: Duration = Duration::from_secs(10);
/// Where images are fast to write; elsewhere the folder for temporary files is used.
const FAST: &str = "/dev/shm";

/// A file system.
#[derive(Debug)]
pub(crate) struct Volume {
    kind: Kind,
    point: PathBuf,
    is_mounted: bool,
    // Last: it is removed after the file system has been unmounted.
    folder: Folder,
}

#[derive(Debug)]
enum Kind {
    Ext4 { image: PathBuf },
    Tmpfs { size: String },
}

impl Volume {
    /// An ext4 file system in a file of this many MiB, mounted.
    pub(crate) fn ext4(size_mib: u64) -> Result<Self, NotRun> {
        Self::ext4_with(size_mib, &[])
    }

    /// One that runs out of space before it runs out of files.
    pub(crate) fn ext4_of_small_files(size_mib: u64) -> Result<Self, NotRun> {
        Self::ext4_with(size_mib, &["-i", "1024"])
    }

    fn ext4_with(size_mib: u64, options: &[&str]) -> Result<Self, NotRun> {
        let parent = Path::new(FAST);
        let parent = if parent.is_dir() { parent.to_owned() } else { std::env::temp_dir() };
        let folder = Folder::new(&parent).map_err(not_run)?;
        let image = folder.path().join("image");
        let file = fs::File::create(&image).map_err(not_run)?;
        file.set_len(size_mib << 20).map_err(not_run)?;
        // Everything at once: nothing shall go on writing behind our back.
        let at_once = ["-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        call(Command::new("mkfs.ext4").args(at_once).args(options).arg(&image))?;
        Self::made(folder, Kind::Ext4 { image })
    }

    /// A file system of this many MiB in memory, mounted.
    pub(crate) fn tmpfs(size_mib: u64) -> Result<Self, NotRun> {
        let folder = Folder::new(&std::env::temp_dir()).map_err(not_run)?;
        Self::made(folder, Kind::Tmpfs { size: format!("size={size_mib}m") })
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// Mounts it.
    pub(crate) fn mount(&mut self) -> Result<(), NotRun> {
        let mut command = Command::new("mount");
        match &self.kind {
            Kind::Ext4 { image } => command.args(["-o", "loop"]).arg(image),
            Kind::Tmpfs { size } => command.args(["-t", "tmpfs", "-o", size, "tmpfs"]),
        };
        call(command.arg(&self.point))?;
        self.is_mounted = true;
        Ok(())
    }

    /// Unmounts it, once nobody uses it any more.
    pub(crate) fn unmount(&mut self) -> Result<(), NotRun> {
        let deadline = Instant::now() + LETS_GO;
        while self.is_mounted {
            match call(Command::new("umount").arg(&self.point)) {
                Ok(()) => self.is_mounted = false,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Ok(())
    }

    fn made(folder: Folder, kind: Kind) -> Result<Self, NotRun> {
        let point = folder.path().join("mounted");
        fs::create_dir(&point).map_err(not_run)?;
        let mut volume = Self { kind, point, is_mounted: false, folder };
        volume.mount()?;
        Ok(volume)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(NotRun(why)) = self.unmount() {
            // Lazily: it goes as soon as the last user does.
            let lazily = call(Command::new("umount").arg("-l").arg(&self.point));
            let also = lazily.err().map(|NotRun(why)| why).unwrap_or_default();
            say(&format!("{}: {why} {also}", self.folder.path().display()));
        }
    }
}

/// Runs a command that says nothing if all is well.
fn call(command: &mut Command) -> Result<(), NotRun> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| NotRun(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // The first line says what; some programs add advice.
    Err(NotRun(said.lines().next().unwrap_or(&program).to_owned()))
}

fn not_run(error: std::io::Error) -> NotRun {
    NotRun(error.to_string())
}

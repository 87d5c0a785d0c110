//! Which files there are: those git tracks and those it would add. What is ignored is nobody's
//! concern.

use std::path::Path;
use std::process::Command;

/// Every text file of the repository at `root`, as (path, text), sorted by path. Files that are
/// not UTF-8 are left out; so are those deleted but still in the index.
///
/// # Panics
/// If git cannot list the files: rules that see nothing must not pass.
#[must_use]
pub fn repository(root: &Path) -> Vec<(String, String)> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git is installed");
    assert!(listing.status.success(), "{}", String::from_utf8_lossy(&listing.stderr));
    let names = String::from_utf8(listing.stdout).expect("paths are UTF-8");
    let mut files: Vec<(String, String)> = names
        .split_terminator('\0')
        .filter_map(|path| Some((path.to_owned(), std::fs::read_to_string(root.join(path)).ok()?)))
        .collect();
    files.sort();
    files.dedup();
    files
}

//! A simulated directory: the names that are seen, those that a power cut cannot take away, and
//! the changes that are the difference. A power cut keeps the first of the changes, never a later
//! one without an earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fate::Fate;
use super::state::Inode;

type Names = BTreeMap<Arc<str>, Inode>;

#[derive(Clone, Default)]
pub(super) struct Directory {
    seen: Arc<Names>,
    durable: Arc<Names>,
    unsynced: Vec<Change>,
    /// A sync failed: some of what is seen is not durable, and no sync makes it so.
    has_lost: bool,
}

#[derive(Clone)]
pub(super) enum Change {
    Add(Arc<str>, Inode),
    Remove(Arc<str>),
    /// From one name to another, in one step.
    Rename(Arc<str>, Arc<str>, Inode),
}

impl Directory {
    pub(super) fn find(&self, name: &str) -> Option<Inode> {
        self.seen.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&str, Inode)> {
        self.seen.iter().map(|(name, inode)| (&**name, *inode))
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(Arc::make_mut(&mut self.seen));
        self.unsynced.push(change);
    }

    /// Makes the changes since the last sync durable.
    pub(super) fn sync(&mut self) {
        self.durable = self.after(self.unsynced.len());
        self.unsynced.clear();
    }

    /// As kernels do it: what could not be written is taken for written.
    pub(super) fn fail_sync(&mut self) {
        self.has_lost |= !self.unsynced.is_empty();
        self.unsynced.clear();
    }

    /// What a power cut leaves: a directory of which everything is durable.
    pub(super) fn after_crash(&self, fate: &mut Fate) -> Self {
        let count = self.unsynced.len();
        let names = self.after(if count == 0 { 0 } else { fate.of_changes(count) });
        Self { seen: Arc::clone(&names), durable: names, unsynced: Vec::new(), has_lost: false }
    }

    /// Every file that has a name here, or may have one after a power cut.
    pub(super) fn reachable(&self) -> impl Iterator<Item = Inode> {
        let changed = self.unsynced.iter().filter_map(|change| match change {
            Change::Add(_, inode) | Change::Rename(_, _, inode) => Some(*inode),
            Change::Remove(_) => None,
        });
        self.seen.values().chain(self.durable.values()).copied().chain(changed)
    }

    /// The names after the first `count` of the unsynced changes.
    fn after(&self, count: usize) -> Arc<Names> {
        if count == self.unsynced.len() && !self.has_lost {
            return Arc::clone(&self.seen);
        }
        let mut names = Arc::clone(&self.durable);
        for change in &self.unsynced[..count] {
            change.apply(Arc::make_mut(&mut names));
        }
        names
    }
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(name, inode) => {
                names.insert(Arc::clone(name), *inode);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(Arc::clone(to), *inode);
            }
        }
    }
}

//! All of a simulated disk: files and directories by number, names leading from the root to them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::directory::{Change, Directory};
use super::fate::Fate;
use super::file::File;
use super::pages::Pages;
use super::plan::{self, Plan};

/// What a name leads to. None is used twice.
pub(super) type Inode = u64;

const ROOT: Inode = 0;
/// Longest file.
const FILE_LEN_MAX: u64 = 1 << 32;

pub(super) struct State {
    nodes: BTreeMap<Inode, Node>,
    next: Inode,
    pub(super) plan: Plan,
    pub(super) locks: BTreeSet<Inode>,
}

#[derive(Clone)]
enum Node {
    File(File),
    Directory(Directory),
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]),
            next: ROOT + 1,
            plan: Plan::default(),
            locks: BTreeSet::new(),
        }
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.plan.look()?;
        let mut above = None;
        let mut at = ROOT;
        let (_, names) = self.walk(path, false)?;
        let mut names = names.into_iter().peekable();
        while let Some(inode) = names.peek().and_then(|name| self.directory(at).ok()?.find(name)) {
            self.directory(inode)?;
            names.next();
            above = Some(at);
            at = inode;
        }
        // Whoever made the last that is there may have died before its name was durable.
        if let Some(above) = above {
            self.sync_directory(above)?;
        }
        for name in names {
            self.plan.operation()?;
            let made = self.add(at, &name, Node::Directory(Directory::default()))?;
            self.sync_directory(at)?;
            at = made;
        }
        Ok(())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<Inode> {
        self.plan.operation()?;
        let (parent, name) = self.place(path)?;
        if self.directory(parent)?.find(&name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.add(parent, &name, Node::File(File::default()))
    }

    fn add(&mut self, parent: Inode, name: &str, node: Node) -> io::Result<Inode> {
        if self.free() == Some(0) {
            return Err(plan::full());
        }
        let inode = self.next;
        self.directory_mut(parent)?.change(Change::Add(name.into(), inode));
        self.nodes.insert(inode, node);
        self.next += 1;
        Ok(inode)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.plan.operation()?;
        let inode = self.find(from)?;
        let ((from, old), (to, new)) = (self.place(from)?, self.place(to)?);
        match self.directory(to)?.find(&new) {
            Some(_) if !replace => return Err(io::ErrorKind::AlreadyExists.into()),
            Some(taken) if taken == inode => return Ok(()),
            // A directory is neither replaced, nor does it replace anything.
            Some(taken) => {
                self.file(inode)?;
                self.file(taken)?;
            }
            None => {}
        }
        let (old, new) = (old.into(), new.into());
        if from == to {
            self.directory_mut(from)?.change(Change::Rename(old, new, inode));
        } else {
            self.directory_mut(to)?.change(Change::Add(new, inode));
            self.directory_mut(from)?.change(Change::Remove(old));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.plan.operation()?;
        let inode = self.find(path)?;
        self.file(inode)?;
        let (parent, name) = self.place(path)?;
        self.directory_mut(parent)?.change(Change::Remove(name.into()));
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.plan.look()?;
        let inode = self.find(path)?;
        self.sync_directory(inode)
    }

    fn sync_directory(&mut self, inode: Inode) -> io::Result<()> {
        self.directory(inode)?;
        let failed = self.plan.sync()?;
        let directory = self.directory_mut(inode)?;
        if let Some(error) = failed {
            directory.fail_sync();
            return Err(error);
        }
        directory.sync();
        self.sweep();
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.plan.look()?;
        let names = self.directory(self.find(path)?)?.names();
        let files = names.filter(|(_, inode)| self.file(*inode).is_ok());
        Ok(files.map(|(name, _)| name.to_owned()).collect())
    }

    pub(super) fn read(&self, inode: Inode, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.plan.look()?;
        let is_unreadable =
            |path: &Path| self.plan.unreadable.iter().any(|part| path_has(path, part));
        if !self.plan.unreadable.is_empty()
            && self.files().iter().any(|(path, named)| *named == inode && is_unreadable(path))
        {
            return Err(plan::unreadable());
        }
        let is_read = self.file(inode)?.seen().read(buffer, offset);
        if is_read { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(super) fn write(&mut self, inode: Inode, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.plan.operation()?;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_LEN_MAX);
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        let free = self.free();
        let file = self.file_mut(inode)?;
        // A write that does not fit is written as far as it does.
        let room = free.map_or(end, |free| file.seen().len().saturating_add(free));
        let fits = end.min(room).saturating_sub(offset).min(bytes.len() as u64);
        let fits = usize::try_from(fits).expect("it is at most a length");
        if fits > 0 {
            file.write(&bytes[..fits], offset);
        }
        if fits < bytes.len() { Err(plan::full()) } else { Ok(()) }
    }

    pub(super) fn sync(&mut self, inode: Inode) -> io::Result<()> {
        let failed = self.plan.sync()?;
        let file = self.file_mut(inode)?;
        if let Some(error) = failed {
            file.fail_sync();
            return Err(error);
        }
        file.sync();
        Ok(())
    }

    /// What the end of the process leaves: all that is seen, and nobody has anything open.
    pub(super) fn fork(&self) -> Self {
        let mut nodes = self.nodes.clone();
        for node in nodes.values_mut() {
            if let Node::File(file) = node {
                file.handles = 0;
            }
        }
        self.copy(nodes)
    }

    /// What a power cut leaves.
    pub(super) fn crash(&self, seed: u64) -> Self {
        let mut fate = Fate::new(seed);
        let nodes = self.nodes.iter().map(|(inode, node)| {
            let left = match node {
                Node::File(file) => Node::File(File::durable(file.after_crash(&mut fate))),
                Node::Directory(names) => Node::Directory(names.after_crash(&mut fate)),
            };
            (*inode, left)
        });
        self.copy(nodes.collect())
    }

    fn copy(&self, nodes: BTreeMap<Inode, Node>) -> Self {
        let plan = self.plan.of_copy();
        let mut copy = Self { nodes, next: self.next, plan, locks: BTreeSet::new() };
        copy.sweep();
        copy
    }

    /// Forgets what has no name, can get none back, and is not open.
    fn sweep(&mut self) {
        let mut kept = BTreeSet::from([ROOT]);
        let mut todo = vec![ROOT];
        while let Some(inode) = todo.pop() {
            if let Some(Node::Directory(directory)) = self.nodes.get(&inode) {
                todo.extend(directory.reachable().filter(|inode| kept.insert(*inode)));
            }
        }
        self.nodes.retain(|inode, node| {
            kept.contains(inode) || matches!(node, Node::File(file) if file.handles > 0)
        });
    }

    /// How many bytes may still be written, if there is an end to it.
    fn free(&self) -> Option<u64> {
        let capacity = self.plan.capacity?;
        let named: BTreeSet<_> = self.files().into_iter().map(|(_, inode)| inode).collect();
        let used = self.nodes.iter().map(|(inode, node)| match node {
            Node::File(file) if file.handles > 0 || named.contains(inode) => file.seen().len(),
            _ => 0,
        });
        Some(capacity.saturating_sub(used.sum()))
    }

    /// All files that have names, by path.
    pub(super) fn files(&self) -> Vec<(PathBuf, Inode)> {
        let mut files = Vec::new();
        let mut todo = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, inode)) = todo.pop() {
            match self.nodes.get(&inode) {
                Some(Node::Directory(directory)) => {
                    todo.extend(directory.names().map(|(name, inode)| (path.join(name), inode)));
                }
                Some(Node::File(_)) => files.push((path, inode)),
                None => {}
            }
        }
        files.sort();
        files
    }

    pub(super) fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.plan.look()?;
        let (inode, names) = self.walk(path, true)?;
        self.directory(inode)?;
        Ok(Path::new("/").join(names.iter().collect::<PathBuf>()))
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Inode> {
        Ok(self.walk(path, true)?.0)
    }

    /// The directory that has, or may get, the last name of a path, and that name.
    fn place(&self, path: &Path) -> io::Result<(Inode, String)> {
        let (_, mut names) = self.walk(path, false)?;
        let name = names.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.find(&names.iter().collect::<PathBuf>())?;
        self.directory(parent)?;
        Ok((parent, name))
    }

    /// Where a path leads, and the names on the way there, without detours. There are no links, so
    /// that going up is the same as leaving a name away. If not `look`, only the names count.
    fn walk(&self, path: &Path, look: bool) -> io::Result<(Inode, Vec<String>)> {
        let mut names = Vec::new();
        let mut way = vec![ROOT];
        for component in path.components() {
            match component {
                Component::Normal(name) => {
                    let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
                    if look {
                        let at = way.last().copied().unwrap_or(ROOT);
                        let found = self.directory(at)?.find(name);
                        way.push(found.ok_or(io::ErrorKind::NotFound)?);
                    }
                    names.push(name.to_owned());
                }
                Component::ParentDir => {
                    names.pop();
                    way.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok((way.last().copied().unwrap_or(ROOT), names))
    }

    /// Puts bytes into a new or an old file, durably.
    pub(super) fn put(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let inode = match self.find(path) {
            Ok(inode) => inode,
            Err(_) => {
                let above = path.parent().unwrap_or(path);
                self.create_dir(above)?;
                let inode = self.create(path)?;
                self.sync_dir(above)?;
                inode
            }
        };
        let mut pages = Pages::default();
        pages.write(bytes, 0);
        self.file_mut(inode)?.replace(pages);
        Ok(())
    }

    fn directory(&self, inode: Inode) -> io::Result<&Directory> {
        match self.nodes.get(&inode) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn directory_mut(&mut self, inode: Inode) -> io::Result<&mut Directory> {
        match self.nodes.get_mut(&inode) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file(&self, inode: Inode) -> io::Result<&File> {
        match self.nodes.get(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file_mut(&mut self, inode: Inode) -> io::Result<&mut File> {
        match self.nodes.get_mut(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn path_has(path: &Path, part: &str) -> bool {
    path.to_string_lossy().contains(part)
}

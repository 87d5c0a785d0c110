//! What is to go wrong on a simulated disk, and when.

use std::collections::BTreeMap;
use std::io;

/// No space left on the device, as the machine says it.
const ENOSPC: i32 = 28;
/// Input or output failed, as the machine says it.
const EIO: i32 = 5;

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Operations that were let through.
    pub(super) operations: u64,
    /// Syncs among them, failed ones too.
    pub(super) syncs: u64,
    pub(super) is_cut: bool,
    pub(super) cut_at: Option<u64>,
    pub(super) failing_operations: BTreeMap<u64, io::ErrorKind>,
    pub(super) failing_syncs: BTreeMap<u64, io::ErrorKind>,
    pub(super) capacity: Option<u64>,
    pub(super) unreadable: Vec<String>,
}

impl Plan {
    /// The plan of a copy: a disk stays as large as it is, whatever else was to happen is over.
    pub(super) fn of_copy(&self) -> Self {
        Self { capacity: self.capacity, ..Self::default() }
    }

    /// Asks for something that changes nothing.
    pub(super) fn look(&self) -> io::Result<()> {
        if self.is_cut { Err(io::Error::other("the power is cut")) } else { Ok(()) }
    }

    /// Asks for one operation that is not a sync.
    pub(super) fn operation(&mut self) -> io::Result<()> {
        self.number()?;
        self.planned().map_or(Ok(()), |kind| Err(failure(kind)))
    }

    /// Asks for one sync. An error: nothing happens. `Some`: it happens, and fails with that.
    pub(super) fn sync(&mut self) -> io::Result<Option<io::Error>> {
        self.number()?;
        self.syncs += 1;
        let kind = self.failing_syncs.get(&self.syncs).copied().or_else(|| self.planned());
        Ok(kind.map(failure))
    }

    pub(super) fn cut_at(&mut self, operation: u64) {
        self.cut_at = Some(operation);
        self.is_cut |= operation <= self.operations;
    }

    fn number(&mut self) -> io::Result<()> {
        self.is_cut |= self.cut_at.is_some_and(|cut| cut <= self.operations + 1);
        self.look()?;
        self.operations += 1;
        Ok(())
    }

    fn planned(&self) -> Option<io::ErrorKind> {
        self.failing_operations.get(&self.operations).copied()
    }
}

fn failure(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "failed as planned")
}

pub(super) fn full() -> io::Error {
    io::Error::from_raw_os_error(ENOSPC)
}

pub(super) fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

//! What a collecting double remembers. Invariant: entries and reserved places together are never
//! more than the capacity.

use parking_lot::Mutex;

use crate::backend::Outgoing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::MessageId;
use crate::name::Name;

#[derive(Debug)]
pub(crate) struct Log {
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    entries: Vec<(MessageId, Outgoing)>,
    /// For sends that are under way.
    reserved: usize,
    capacity: usize,
}

impl Log {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { pages: Mutex::new(Pages { entries: Vec::new(), reserved: 0, capacity }) }
    }

    pub(crate) fn set_capacity(&self, capacity: usize) {
        self.pages.lock().capacity = capacity;
    }

    pub(crate) fn entries(&self) -> Vec<(MessageId, Outgoing)> {
        self.pages.lock().entries.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.lock().entries.len()
    }

    pub(crate) fn forget(&self) {
        self.pages.lock().entries.clear();
    }

    /// A place for a message that is about to be sent; given up when dropped.
    pub(crate) fn reserve(&self, mailbox: &Name) -> Result<Reserved<'_>> {
        let mut pages = self.pages.lock();
        if pages.entries.len() + pages.reserved >= pages.capacity {
            let message = format!("full: it remembers {} messages, its capacity", pages.capacity);
            return Err(Error::new(ErrorKind::MailboxFull, message).with_mailbox(mailbox));
        }
        pages.reserved += 1;
        drop(pages);
        Ok(Reserved { log: self })
    }
}

pub(crate) struct Reserved<'a> {
    log: &'a Log,
}

impl Reserved<'_> {
    pub(crate) fn fill(self, id: MessageId, message: Outgoing) {
        let mut pages = self.log.pages.lock();
        pages.entries.push((id, message));
        pages.reserved -= 1;
        drop(pages);
        // The place is taken, not given up.
        std::mem::forget(self);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.log.pages.lock().reserved -= 1;
    }
}

//! What went wrong with a delivery, in somebody's words: too long for a file name, so it has a file
//! of its own, `notes/BASE~eNUMBER`. The message's name says which. The number is random: whoever
//! writes a note and then turns out to be late disturbs nobody else's.

use std::fs::File;
use std::io::{self, Read, Write};

use mailbox_core::limits;

use crate::backends::directory::digits::Digits;
use crate::backends::directory::file_name::FileName;
use crate::backends::directory::folders::{
    Folders, Side, create_file, is_full, open_file, remove as unlink,
};
use crate::durability::Durability;

/// Bits of a note's number.
pub(crate) const BITS: u32 = 40;

fn name(base: &str, note: u64) -> String {
    format!("{base}~e{}", Digits(note))
}

/// What the note of a message is called, if it has one.
pub(crate) fn name_of(message: &FileName) -> Option<String> {
    message.note.map(|note| name(message.base(), note))
}

/// Writes a note; gives its number. `None` if there is no space for it: settling makes some, and
/// must not fail for want of it.
pub(crate) fn write(
    folders: &Folders,
    base: &str,
    text: &str,
    durability: Durability,
) -> io::Result<Option<u64>> {
    let folder = folders.side(Side::Notes);
    let note = u64::from_be_bytes(crate::home::random()) >> (u64::BITS - BITS);
    let name = name(base, note);
    let written = create_file(folder, &name, folders.trust()).and_then(|fd| {
        let mut file = File::from(fd);
        file.write_all(text.as_bytes())?;
        if durability == Durability::Fsync {
            file.sync_data()?;
            rustix::fs::fsync(folder)?;
        }
        Ok(Some(note))
    });
    match written {
        Err(error) if is_full(&error) => {
            unlink(folder, &name)?;
            tracing::warn!(name, %error, "no note of what went wrong");
            Ok(None)
        }
        written => written,
    }
}

/// The note of a message, if there is one: it may be lost, as everything that is not synced.
pub(crate) fn read(folders: &Folders, message: &FileName) -> Option<String> {
    let name = std::ffi::CString::new(name(message.base(), message.note?)).ok()?;
    let file = File::from(open_file(folders.side(Side::Notes), &name).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(limits::ERROR_TEXT_LEN as u64).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes a message's note. One that stays is no harm, and goes when it is old.
pub(crate) fn remove(folders: &Folders, message: &FileName) {
    let Some(note) = message.note else { return };
    let name = name(message.base(), note);
    if let Err(error) = unlink(folders.side(Side::Notes), &name) {
        tracing::debug!(name, %error, "a note stays behind");
    }
}

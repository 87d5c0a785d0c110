//! What every home answers about its mailboxes by name, and about one that nobody has used.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::backend::Selection;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// The names from behind `after` on, at most `limit`.
pub(crate) fn names<T>(
    by_name: &BTreeMap<Name, T>,
    after: Option<&Name>,
    limit: usize,
) -> Vec<Name> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let range = by_name.range::<Name, _>((from, Bound::Unbounded));
    range.take(limit).map(|(name, _)| name.clone()).collect()
}

/// What there is to do about dead letters where nothing was ever sent.
pub(crate) fn nothing_dead(mailbox: &Name, which: &Selection) -> Result<u64> {
    match which {
        Selection::These(ids) if !ids.is_empty() => {
            let message = format!("no dead letter {:.100}", ids[0]);
            Err(Error::new(ErrorKind::NotFound, message).with_mailbox(mailbox))
        }
        _ => Ok(0),
    }
}

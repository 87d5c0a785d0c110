//! From an answer to what was asked for.

use mailbox_wire::call::Reply;
use mailbox_wire::json;

/// What can be asked for.
pub(super) trait Answer: Sized {
    /// The answer, if it is one to this.
    fn of(reply: Reply) -> Option<Self>;
}

macro_rules! answers {
    ($($variant:ident => $answer:ident,)*) => {
        $(impl Answer for json::$answer {
            fn of(reply: Reply) -> Option<Self> {
                match reply {
                    Reply::$variant(it) => Some(it),
                    _ => None,
                }
            }
        })*
    };
}

answers! {
    SentBatch => SentBatch,
    Done => Ok,
    SettledBatch => SettledBatch,
    Topics => Topics,
    Topic => Topic,
    Removed => Removed,
    Purged => Purged,
    Records => Records,
    Reprocessed => Reprocessed,
    Deleted => Deleted,
    Abilities => Abilities,
    Minted => Minted,
    Revoked => Revoked,
    Rotated => Rotated,
}

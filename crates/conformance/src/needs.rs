//! What a case may need beyond the least that every subject has, each with the words that explain
//! why it does not apply.

use mailbox::Abilities;

use crate::subject::SubjectInfo;

type Answer = Result<(), &'static str>;

const fn given(is: bool, why_not: &'static str) -> Answer {
    if is { Ok(()) } else { Err(why_not) }
}

/// Several types of mailboxes share their payloads, so bodies can be sent that do not decode.
pub(crate) fn bytes(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.backend, "needs several types over one payload: here a mailbox has its own")
}

/// The `Backend` itself can be called: for what a mailbox has no method for.
pub(crate) fn backend(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.backend, "needs a backend of several mailboxes: here each is its own")
}

/// Deliveries in order.
pub(crate) fn order(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(abilities.ordered, "needs `ordered`")
}

/// Exact counts.
pub(crate) fn counts(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(abilities.exact_count, "needs `exact_count`")
}

/// A count of everything that happens.
pub(crate) fn totals(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(abilities.totals, "needs `totals`")
}

/// Idempotency keys.
pub(crate) fn keys(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(abilities.idempotency, "needs `idempotency`")
}

/// No idempotency keys: they have to be refused then.
pub(crate) fn no_keys(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(!abilities.idempotency, "keys are understood here")
}

/// Ordering groups.
pub(crate) fn groups(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(abilities.groups, "needs `groups`")
}

/// Deliveries can be undone.
pub(crate) fn undo(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(abilities.undo, "needs `undo`")
}

/// A settle after the deadline is refused.
pub(crate) fn strict(abilities: &Abilities, _: &SubjectInfo) -> Answer {
    given(abilities.strict_deadlines, "needs `strict_deadlines`")
}

/// Time stands still unless the case moves it, so deadlines can be met to the nanosecond and hours
/// pass in no time.
pub(crate) fn exact_time(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.virtual_time, "needs virtual time")
}

/// A waiting receive can be dropped.
pub(crate) fn cancel(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(
        info.cancellable,
        "needs receives that can be dropped: here a thread, or a process, waits",
    )
}

/// Bounds can be set when it is opened.
pub(crate) fn setup(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.configurable, "needs bounds that can be set: here they are fixed")
}

/// What the library says of a refused argument, as it says it.
pub(crate) fn words(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.library, "needs the library's words for a bound: here others refuse first")
}

/// Everything that is known of a delivery, and everything that is counted.
pub(crate) fn facts(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.library, "needs a fact that is not shown here")
}

/// Hundreds of calls while a delivery is held.
pub(crate) fn quick(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.library, "needs hundreds of calls in a short time: here each is a run")
}

/// Many messages in one call.
pub(crate) fn batches(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.library, "needs batches: here every message is a run of its own")
}

/// Bounds of a process are bounds of the whole.
pub(crate) fn alone(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.alone, "needs one process: here each has bounds of its own")
}

/// Waits end with their mailbox, in whichever process they are.
pub(crate) fn told(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.tells_removal, "needs one process: on Redis waits of others end in their own time")
}

/// It can be ended and opened again with what it keeps.
pub(crate) fn restart(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.restart, "needs restart: nothing here outlives the process")
}

/// Shows something that has nothing to do with where mailboxes are kept: once is enough.
pub(crate) fn once(_: &Abilities, info: &SubjectInfo) -> Answer {
    given(info.reference, "has its own mailboxes: shown on memory")
}

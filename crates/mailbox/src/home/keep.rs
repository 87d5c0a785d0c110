//! Where the messages of a room are kept while they wait: in memory, or somewhere that survives.
//! Invariant: `note` is called under the room's lock, in the order in which events are applied, and
//! an event that it refuses is not applied.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use mailbox_core::{Event, Fingerprint, Freed};

use crate::backend::Letter;
use crate::durability::Durability;
use crate::error::Result;

/// Keeps what the queue does not: letters, and the record of what happened.
pub(crate) trait Keep {
    /// What a letter contains.
    type Body;
    /// Stands for a message in the queue.
    type Slip;
    /// A letter on its way in, made ready before the lock is taken.
    type Parcel;
    /// A letter on its way out: found under the lock, opened after it.
    type Pinned;
    /// What somebody waits for who wants to know that a note is durable.
    type Written: Send + Sync;

    /// Whether every message can be handed out as soon as it is in the queue.
    const AT_ONCE: bool;

    /// How far a message is safe once it is written.
    fn durability(&self) -> Durability;

    /// Makes a letter ready. `hash` is that of its payload, if somebody has worked it out.
    fn pack(&self, letter: Letter<Self::Body>, hash: Option<&Fingerprint>) -> Result<Self::Parcel>;

    /// What stands for a letter until `note` gives it a place.
    fn slip(&self, parcel: &Self::Parcel) -> Self::Slip;

    /// Records an event that is about to be applied; `stamp` is the queue's next one. `parcel` goes
    /// with a new message, whose slip is set here.
    fn note(
        &self,
        stamp: u64,
        event: &mut Event<Self::Slip>,
        parcel: Option<&Self::Parcel>,
    ) -> Result<Self::Written>;

    /// Everything that was noted so far.
    fn so_far(&self) -> Self::Written;

    /// What to wait for before this message can be handed out; `None` if it can be.
    fn not_before(&self, slip: &Self::Slip) -> Option<Self::Written>;

    /// Ends when it is durable.
    ///
    /// # Cancel safety
    /// Safe: what was noted becomes durable whether or not anybody waits.
    fn wait(written: Self::Written) -> impl Future<Output = Result<()>> + Send;

    /// Holds on to a letter, so that it can be opened after the lock.
    fn pin(&self, slip: &Self::Slip) -> Self::Pinned;

    /// Opens a letter.
    fn fetch(&self, pinned: Self::Pinned) -> Result<Fetched<Self::Body>>;

    /// Letters that nobody needs any more. Called after the lock.
    fn release(&self, freed: Freed<Self::Slip>);
}

/// A letter that was opened.
#[derive(Debug)]
pub(crate) struct Fetched<B> {
    pub(crate) letter: Arc<Letter<B>>,
    /// Why it is not what was sent, if it is not; the letter is then a blank.
    pub(crate) damage: Option<String>,
}

/// Letters stay in the queue itself, and end with it.
pub(crate) struct InMemory<B>(PhantomData<fn() -> B>);

impl<B> InMemory<B> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<B> Keep for InMemory<B> {
    type Body = B;
    type Slip = Arc<Letter<B>>;
    type Parcel = Arc<Letter<B>>;
    type Pinned = Arc<Letter<B>>;
    type Written = Option<Infallible>;

    const AT_ONCE: bool = true;

    fn durability(&self) -> Durability {
        Durability::Memory
    }

    #[inline]
    fn pack(&self, letter: Letter<B>, _: Option<&Fingerprint>) -> Result<Self::Parcel> {
        Ok(Arc::new(letter))
    }

    #[inline]
    fn slip(&self, parcel: &Self::Parcel) -> Self::Slip {
        Arc::clone(parcel)
    }

    #[inline]
    fn note(
        &self,
        _: u64,
        _: &mut Event<Self::Slip>,
        _: Option<&Self::Parcel>,
    ) -> Result<Self::Written> {
        Ok(None)
    }

    #[inline]
    fn so_far(&self) -> Self::Written {
        None
    }

    #[inline]
    fn not_before(&self, _: &Self::Slip) -> Option<Self::Written> {
        None
    }

    async fn wait(_: Self::Written) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn pin(&self, slip: &Self::Slip) -> Self::Pinned {
        Arc::clone(slip)
    }

    #[inline]
    fn fetch(&self, letter: Self::Pinned) -> Result<Fetched<B>> {
        Ok(Fetched { letter, damage: None })
    }

    #[inline]
    fn release(&self, freed: Freed<Self::Slip>) {
        drop(freed);
    }
}

//! The bugs of mailboxes on Redis that can be switched on, to see whether the tests notice.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A replicated send does not wait for its replicas.
    NotWaited,
    /// A send that waited for too few replicas is answered as done.
    ShortCountIsEnough,
    /// A send is tried again under another id.
    NewIdOnRetry,
    /// A receive is tried again without looking for what the first try took.
    LeaseForgotten,
    /// A settle that is in doubt is taken for done.
    DoubtIsDone,
    /// Nobody listens to what the servers tell: a waiting receive is not woken.
    Deaf,
}

/// The bug that is switched on: at most one.
pub type Planted = crate::backends::planted::Planted<Bug>;

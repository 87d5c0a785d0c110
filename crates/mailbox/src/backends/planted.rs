//! Bugs that can be switched on, one at a time, to see whether the tests notice. Without the
//! feature `planted`, which no release has, none can be.

use std::marker::PhantomData;

/// The bug of a backend that is switched on: at most one.
#[derive(Debug, Clone, Copy)]
pub struct Planted<B> {
    #[cfg(feature = "planted")]
    bug: Option<B>,
    of: PhantomData<B>,
}

impl<B: Copy + PartialEq> Planted<B> {
    /// Switches a bug on.
    #[cfg(feature = "planted")]
    #[must_use]
    pub const fn bug(bug: B) -> Self {
        Self { bug: Some(bug), of: PhantomData }
    }

    #[cfg(feature = "planted")]
    pub(crate) fn has(self, bug: B) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "planted"))]
    pub(crate) const fn has(self, _: B) -> bool {
        false
    }
}

impl<B> Default for Planted<B> {
    fn default() -> Self {
        Self {
            #[cfg(feature = "planted")]
            bug: None,
            of: PhantomData,
        }
    }
}

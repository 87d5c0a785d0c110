//! What a case is.

use std::error::Error;

use futures_util::future::BoxFuture;
use mailbox::Abilities;

use crate::subject::SubjectInfo;
use crate::world::World;

/// How a case ends. Assertions panic, with the line in the message; what merely failed on the way
/// comes back as an error.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a case needs: why it does not apply to such a subject, if it does not.
pub type Need = fn(&Abilities, &SubjectInfo) -> Result<(), &'static str>;

/// One thing that the contract says, as a program that fails if it is not so.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The clause of `docs/contract.md` that it shows.
    pub id: &'static str,
    /// What it shows, as a sentence with underscores.
    pub name: &'static str,
    /// What it needs beyond the least that every subject has.
    pub needs: &'static [Need],
    /// Runs it in a world of its own.
    pub run: fn(World) -> BoxFuture<'static, Outcome>,
}

impl Case {
    /// Why it does not apply to a subject, if it does not.
    ///
    /// # Errors
    /// The reason, for `docs/conformance.md`.
    pub fn applies(&self, abilities: &Abilities, info: &SubjectInfo) -> Result<(), &'static str> {
        self.needs.iter().try_for_each(|need| need(abilities, info))
    }

    /// What it shows, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.name.replace('_', " ")
    }
}

/// An entry of a table of cases: clause, function, and what it needs.
macro_rules! case {
    ($id:literal, $run:ident $(, $need:ident)*) => {
        $crate::case::Case {
            id: $id,
            name: stringify!($run),
            needs: &[$($crate::needs::$need),*],
            run: |world| Box::pin($run(world)),
        }
    };
}
pub(crate) use case;

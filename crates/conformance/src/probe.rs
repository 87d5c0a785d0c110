//! The body that cases send: small, comparable, and of any encoded size one asks for.

use serde::{Deserialize, Serialize};

/// A body to recognise a message by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Tells one message from another.
    pub number: u64,
    /// Whatever the case needs.
    pub text: String,
}

impl Probe {
    /// The probe with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self { number, text: String::new() }
    }

    /// A probe with a text.
    #[must_use]
    pub fn with_text(number: u64, text: impl Into<String>) -> Self {
        Self { number, text: text.into() }
    }

    /// A probe whose JSON has exactly this many bytes; at least 24.
    #[must_use]
    pub fn of_size(bytes: usize) -> Self {
        let bare = serde_json::to_vec(&Self::new(0)).map_or(0, |json| json.len());
        Self::with_text(0, "x".repeat(bytes.saturating_sub(bare)))
    }
}

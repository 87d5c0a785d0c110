//! What a backend measures of itself, beside the mailboxes in it: for those who watch it.

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Figure {
    /// A number that goes up and down.
    Gauge {
        /// What it is called: letters, digits and underscores.
        name: &'static str,
        /// What it is.
        help: &'static str,
        /// How much.
        value: u64,
    },
    /// How long something took, over the life of the backend.
    Histogram {
        /// What it is called: letters, digits and underscores.
        name: &'static str,
        /// What it is.
        help: &'static str,
        /// All of it, in seconds.
        sum: f64,
        /// How often.
        count: u64,
        /// Upper bounds in seconds, the last one `f64::MAX`, and how often it took at most that and
        /// more than the bound before.
        buckets: Vec<(f64, u64)>,
    },
}

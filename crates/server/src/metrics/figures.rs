//! What the service knows of itself at one moment.

/// Counts that are read when somebody looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    pub(crate) cached: usize,
    pub(crate) handed_out: usize,
    pub(crate) connections: usize,
}

//! How a loop is asked to stop.

use tokio_util::sync::CancellationToken;

/// Asks a loop, or a group of them, to stop. Clone it freely.
///
/// Stopping is for good: a loop that was asked to stop before it was started ends at once, and
/// does not start again.
#[derive(Debug, Clone, Default)]
pub struct StopHandle(CancellationToken);

impl StopHandle {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Asks to stop. Returns at once; the loop ends when it has drained.
    pub fn stop(&self) {
        self.0.cancel();
    }

    /// Whether it was asked to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Ends when it is asked to stop.
    ///
    /// # Cancel safety
    /// Safe: it only waits.
    pub async fn stopped(&self) {
        self.0.cancelled().await;
    }
}

//! Time as a busy machine has it. A test that asks whether something happened in time counts beats
//! of what is also done by this process: while the machine does something else there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

/// Beats at about even intervals, as long as the process gets to do anything.
#[derive(Clone)]
pub(crate) struct Pulse(Arc<Beating>);

struct Beating {
    beats: Arc<AtomicU64>,
    task: AbortHandle,
}

/// Shortest time between two beats.
const BEAT: Duration = Duration::from_millis(10);

impl Pulse {
    pub(crate) fn start() -> Self {
        let beats = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&beats);
        let task = tokio::spawn(async move {
            let mut interval = tokio::time::interval(BEAT);
            // What was missed never was: the machine did something else.
            interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                interval.tick().await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self(Arc::new(Beating { beats, task: task.abort_handle() }))
    }

    /// How many there were.
    pub(crate) fn now(&self) -> u64 {
        self.0.beats.load(Ordering::Relaxed)
    }

    /// How many there are in so much time, at most.
    pub(crate) fn beats(time: Duration) -> u64 {
        time.as_millis().div_ceil(BEAT.as_millis()) as u64
    }

    /// How long from now it takes to that beat, at least.
    pub(crate) fn until(&self, beat: u64) -> Duration {
        BEAT * u32::try_from(beat.saturating_sub(self.now())).unwrap_or(u32::MAX)
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.task.abort();
    }
}

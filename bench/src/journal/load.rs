//! Producers in a closed loop: each sends, waits for the answer, and sends the next. What differs
//! between the measured ones is only what is behind [`Sink`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use crate::journal::quantile;

/// Bytes of a payload.
pub(crate) const BODY_LEN: usize = 1_024;
/// Payloads are cut out of this many random bytes, so that producing them costs next to nothing and
/// nobody can compress them.
const SOURCE_LEN: usize = 4 * 1024 * 1024;

/// Answers a send when the message is on the disk.
pub(crate) trait Sink: Send + Sync + 'static {
    /// One message.
    fn send(&self, body: Bytes) -> impl Future<Output = ()> + Send;
}

/// What a round came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Messages answered a second.
    pub(crate) per_second: f64,
    /// Processor time of the whole process for one message, in microseconds.
    pub(crate) cpu_micros: f64,
    /// From call to answer, in microseconds: 99 of 100 take no longer.
    pub(crate) p99_micros: f64,
}

/// Lets `producers` tasks send for a while.
pub(crate) fn drive<S: Sink>(
    runtime: &Runtime,
    sink: &Arc<S>,
    producers: usize,
    lasting: Duration,
) -> Load {
    let (cpu, start) = (cpu_time(), Instant::now());
    let mut nanos: Vec<f64> = runtime.block_on(async {
        let bodies = Bodies::new();
        let produce = |number: usize| {
            let (sink, mut bodies) = (Arc::clone(sink), bodies.starting_at(number));
            tokio::spawn(async move {
                let mut nanos = Vec::new();
                let mut sent = Instant::now();
                while start.elapsed() < lasting {
                    sink.send(bodies.next()).await;
                    let answered = Instant::now();
                    nanos.push((answered - sent).as_nanos() as f64);
                    sent = answered;
                }
                nanos
            })
        };
        let tasks: Vec<_> = (0..producers).map(produce).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("a producer does not panic"));
        }
        all
    });
    let (cpu, elapsed) = (cpu_time() - cpu, start.elapsed());
    let count = nanos.len() as f64;
    Load {
        per_second: count / elapsed.as_secs_f64(),
        cpu_micros: cpu.as_secs_f64() * 1e6 / count,
        p99_micros: quantile(&mut nanos, 0.99) / 1e3,
    }
}

/// Payloads that differ and do not compress.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    source: Bytes,
    at: usize,
}

impl Bodies {
    /// The same ones in every run.
    pub(crate) fn new() -> Self {
        let mut random = 7_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The upper half: the lower bits of such a sequence have short periods.
            ((random >> 32) as u32).to_le_bytes()
        };
        let source: Vec<u8> = (0..SOURCE_LEN / 4).flat_map(|_| next()).collect();
        Self { source: Bytes::from(source), at: 0 }
    }

    /// The same source from elsewhere on.
    pub(crate) fn starting_at(&self, number: usize) -> Self {
        Self { source: self.source.clone(), at: number * 7_919 % (SOURCE_LEN - BODY_LEN) }
    }

    /// The next payload, by reference count.
    pub(crate) fn next(&mut self) -> Bytes {
        let body = self.source.slice(self.at..self.at + BODY_LEN);
        self.at = (self.at + BODY_LEN + 1) % (SOURCE_LEN - BODY_LEN);
        body
    }
}

/// Of all threads of this process.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

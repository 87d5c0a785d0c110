//! Several loops in one process, stopped together (P5).

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};
use tracing::{error, info};

use super::health::Health;
use super::runner::{LoopEnd, MainLoop};
use super::stop::StopHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// Loops that run side by side and are told to stop at once. A clone is the same group, to watch
/// it.
///
/// A loop that ends by itself, because its mailbox was closed for example, leaves the others
/// running; one that crashes stops them all, so that a process does not live on with half of its
/// work left undone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use mailbox::main_loop::{Context, HandlerFailure, LoopEnd, LoopGroup, MainLoop};
/// use mailbox::Mailbox;
///
/// let double = MainLoop::new(Mailbox::local("double")?, |n: u32, _: Context| async move {
///     Ok::<_, HandlerFailure>(2 * n)
/// });
/// let shout = MainLoop::new(Mailbox::local("shout")?, |text: String, _: Context| async move {
///     Ok::<_, HandlerFailure>(text.to_uppercase())
/// });
/// let group = LoopGroup::new().with(&double).with(&shout);
///
/// let stop = group.stop_handle(); // a service would call `group.run_until_signal()`
/// let running = tokio::spawn(group.run());
/// stop.stop();
/// for (name, end) in running.await.unwrap() {
///     assert_eq!(end, LoopEnd::Stopped, "{name}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "a group does nothing until it is run"]
pub struct LoopGroup {
    members: Vec<Arc<dyn Member>>,
    stop: StopHandle,
}

/// A loop whose types are forgotten.
trait Member: Send + Sync {
    fn name(&self) -> Name;
    fn health(&self) -> Health;
    fn run_until(&self, stop: StopHandle) -> Pin<Box<dyn Future<Output = LoopEnd> + Send>>;
}

impl<Q, O> Member for MainLoop<Q, O>
where
    Q: Clone + Send + Sync + 'static,
    O: Send + Sync + 'static,
{
    fn name(&self) -> Name {
        self.requests().name().clone()
    }

    fn health(&self) -> Health {
        Self::health(self)
    }

    fn run_until(&self, stop: StopHandle) -> Pin<Box<dyn Future<Output = LoopEnd> + Send>> {
        Box::pin(Self::run_until(self, async move { stop.stopped().await }))
    }
}

impl LoopGroup {
    /// No loops yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// This group and that loop, which is the same loop as the one given.
    pub fn with<Q, O>(mut self, main_loop: &MainLoop<Q, O>) -> Self
    where
        Q: Clone + Send + Sync + 'static,
        O: Send + Sync + 'static,
    {
        self.members.push(Arc::new(main_loop.clone()));
        self
    }

    /// Stops all loops of this group, whether they run already or not yet.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// How each loop is doing, by the name of its requests mailbox.
    #[must_use]
    pub fn health(&self) -> Vec<(Name, Health)> {
        self.members.iter().map(|member| (member.name(), member.health())).collect()
    }

    /// Runs all loops until all have ended; gives how each did, in the order they were added.
    ///
    /// # Cancel safety
    /// As [`MainLoop::run`], for each of them.
    pub async fn run(self) -> Vec<(Name, LoopEnd)> {
        self.run_all().await
    }

    /// Runs all loops, and stops them when the process gets SIGTERM or SIGINT (elsewhere than on
    /// Unix: Ctrl-C). From then on these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// `Internal` if the system refuses to tell of signals; then nothing has run.
    ///
    /// # Cancel safety
    /// As [`MainLoop::run`], for each of them.
    pub async fn run_until_signal(self) -> Result<Vec<(Name, LoopEnd)>> {
        let signal = signals()?;
        let stop = self.stop.clone();
        let watch = async {
            let name = signal.await;
            info!(signal = name, "every loop is told to stop");
            stop.stop();
            // The loops end when they have drained, and everything with them.
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            ends = self.run_all() => Ok(ends),
            never = watch => match never {},
        }
    }

    async fn run_all(&self) -> Vec<(Name, LoopEnd)> {
        let mut tasks = JoinSet::new();
        let ids: Vec<Id> = self
            .members
            .iter()
            .map(|member| tasks.spawn(member.run_until(self.stop.clone())).id())
            .collect();
        let mut ends = vec![LoopEnd::Crashed; ids.len()];
        while let Some(ended) = tasks.join_next_with_id().await {
            match ended {
                Ok((id, end)) => {
                    if let Some(member) = ids.iter().position(|known| *known == id) {
                        ends[member] = end;
                    }
                }
                Err(defect) => {
                    error!(%defect, "a loop has crashed: the others are told to stop");
                    self.stop.stop();
                }
            }
        }
        self.members.iter().map(|member| member.name()).zip(ends).collect()
    }
}

impl fmt::Debug for LoopGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopGroup").field("health", &self.health()).finish_non_exhaustive()
    }
}

fn refused(error: std::io::Error) -> Error {
    let message = "the system does not tell of signals";
    Error::new(ErrorKind::Internal, message).with_source(error)
}

/// Ends at the first signal to stop; gives its name. Listens from the call on, not from the first
/// poll.
#[cfg(unix)]
fn signals() -> Result<impl Future<Output = &'static str>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

#[cfg(windows)]
fn signals() -> Result<impl Future<Output = &'static str>> {
    let mut pressed = tokio::signal::windows::ctrl_c().map_err(refused)?;
    Ok(async move {
        let _ = pressed.recv().await;
        "Ctrl-C"
    })
}

//! The loop itself: receives as many requests as it has free places, and no more, so that no
//! lease ever waits in a buffer; each one then flies by itself.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::flight::{Equipment, Flight};
use super::handler::{AnyHandler, Handler, any};
use super::health::{Count, Health, Meter};
use super::keep_alive::Received;
use super::options::LoopOptions;
use super::pace::pause;
use super::request::MainLoopRequest;
use super::result::MainLoopResult;
use super::stop::StopHandle;
use crate::error::{ErrorKind, Result};
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::options::ReceiveOptions;

/// How often a loop shows a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After the last handler was cut off: how long its nack may take.
const SETTLING: Duration = Duration::from_secs(5);

/// Receives requests, has them handled, replies, and only then acknowledges (P1).
///
/// A handler's error is an answer, not a reason to try again: it is replied, and the request is
/// acknowledged. For jobs that are retried, receive and nack yourself; see the example
/// `work_queue`. `Q: Clone`, because bodies of a local mailbox are shared.
///
/// A cheap handle: a clone is the same loop, to watch it or to stop it. See the
/// [module](super) for an example and for what happens when something goes wrong.
pub struct MainLoop<Q, O> {
    requests: Mailbox<MainLoopRequest<Q>, MainLoopResult<O>>,
    handler: AnyHandler<Q, O>,
    responses: Option<Mailbox<MainLoopResult<O>>>,
    options: LoopOptions,
    stop: StopHandle,
    meter: Arc<Meter>,
}

/// Why a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoopEnd {
    /// It was asked to.
    Stopped,
    /// Its requests mailbox was closed.
    Closed,
    /// It has done its `max_iterations`.
    MaxIterations,
    /// A defect: it panicked itself. Only a [`LoopGroup`](super::LoopGroup) lives to tell.
    Crashed,
}

type Requests<Q, O> = Vec<Message<MainLoopRequest<Q>, MainLoopResult<O>>>;

impl<Q, O> MainLoop<Q, O>
where
    Q: Clone + Send + Sync + 'static,
    O: Send + Sync + 'static,
{
    /// A loop over `requests`, with default options. Nothing happens before it is run.
    #[must_use]
    pub fn new(
        requests: Mailbox<MainLoopRequest<Q>, MainLoopResult<O>>,
        handler: impl Handler<Q, O>,
    ) -> Self {
        Self {
            requests,
            handler: any(handler),
            responses: None,
            options: LoopOptions::default(),
            stop: StopHandle::new(),
            meter: Arc::new(Meter::default()),
        }
    }

    /// This loop, with these options.
    ///
    /// # Errors
    /// `InvalidParameter`, naming the field.
    pub fn with_options(mut self, options: LoopOptions) -> Result<Self> {
        options.check()?;
        let receive = ReceiveOptions::default()
            .with_visibility_timeout(options.visibility_timeout)
            .with_wait(options.wait);
        self.requests.abilities().check_receive(&receive)?;
        self.options = options;
        Ok(self)
    }

    /// This loop; results of requests without `reply_to` go to `responses`.
    #[must_use]
    pub fn with_responses(mut self, responses: Mailbox<MainLoopResult<O>>) -> Self {
        self.responses = Some(responses);
        self
    }

    /// The mailbox it receives from.
    #[must_use]
    pub fn requests(&self) -> &Mailbox<MainLoopRequest<Q>, MainLoopResult<O>> {
        &self.requests
    }

    /// Stops this loop, whether it runs already or not yet.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// How it is doing.
    #[must_use]
    pub fn health(&self) -> Health {
        self.meter.read()
    }

    /// Runs until it is stopped, its requests mailbox is closed, or its iterations are done. Needs
    /// a tokio runtime with its timer enabled.
    ///
    /// After a stop it receives no more, lets handlers go on for `drain`, then tells those that
    /// are left to stop, cuts them off after `grace` and nacks their requests. It ends at the
    /// latest 5 s after that, whatever the backend does.
    ///
    /// Errors of the mailbox do not end it: it tries again, at growing intervals of 30 s at most.
    /// Running it twice at the same time gives twice the concurrency.
    ///
    /// # Cancel safety
    /// Dropping the future ends everything at once, running handlers too. Nothing is lost: what
    /// was in flight comes back when its visibility timeout is over.
    pub fn run(&self) -> impl Future<Output = LoopEnd> + Send + 'static {
        self.run_until(std::future::pending())
    }

    /// Runs as [`run`](Self::run) does, until `stop` ends if nothing ends it before.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_until<S>(&self, stop: S) -> impl Future<Output = LoopEnd> + Send + use<Q, O, S>
    where
        S: Future<Output = ()> + Send,
    {
        // The future has its own handle, so that it can be spawned.
        let this = self.clone();
        async move { this.run_here(stop).await }
    }

    async fn run_here(&self, stop: impl Future<Output = ()> + Send) -> LoopEnd {
        let _running = self.meter.running();
        let stop = async {
            tokio::select! {
                biased;
                () = self.stop.stopped() => (),
                () = stop => (),
            }
        };
        let mut stop = pin!(stop);
        let mut crew = Crew {
            equipment: Arc::new(Equipment {
                handler: Arc::clone(&self.handler),
                responses: self.responses.clone(),
                options: self.options.clone(),
                meter: Arc::clone(&self.meter),
            }),
            flights: JoinSet::new(),
            drained: CancellationToken::new(),
        };
        let mailbox = self.requests.name();
        let mut end = self.receive_all(&mut crew, stop.as_mut()).await;
        if end == LoopEnd::MaxIterations {
            // Nobody is in a hurry: what was received is finished, unless a stop comes.
            tokio::select! {
                biased;
                () = crew.finish() => (),
                () = stop => end = LoopEnd::Stopped,
            }
        }
        info!(%mailbox, ?end, in_flight = crew.flights.len(), "the loop ends");
        crew.drain(&self.options).await;
        end
    }

    async fn receive_all(
        &self,
        crew: &mut Crew<Q, O>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> LoopEnd {
        let mut iterations = 0;
        let mut failures = 0;
        loop {
            let has_place = tokio::select! {
                biased;
                () = stop.as_mut() => return LoopEnd::Stopped,
                free = self.alive(crew.free_places(self.options.concurrency)) => free,
            };
            if self.options.max_iterations.is_some_and(|most| iterations >= most) {
                return LoopEnd::MaxIterations;
            }
            iterations += 1;
            let called = Instant::now();
            let received = tokio::select! {
                biased;
                () = stop.as_mut() => return LoopEnd::Stopped,
                received = self.alive(self.receive(has_place)) => received,
            };
            let error = match received {
                Ok(messages) => {
                    failures = 0;
                    crew.launch(messages, called);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Closed => return LoopEnd::Closed,
                Err(error) => error,
            };
            failures += 1;
            self.meter.count(Count::ReceiveErrors);
            let pause = pause(&error, failures);
            warn!(%error, ?pause, failures, "cannot receive");
            tokio::select! {
                biased;
                () = stop.as_mut() => return LoopEnd::Stopped,
                () = self.alive(sleep(pause)) => (),
            }
        }
    }

    async fn receive(&self, free: usize) -> Result<Requests<Q, O>> {
        let most = self.requests.abilities().max_messages;
        let max_messages = u32::try_from(free).unwrap_or(most).min(most);
        let options = ReceiveOptions::default()
            .with_max_messages(max_messages)
            .with_visibility_timeout(self.options.visibility_timeout)
            .with_wait(self.options.wait);
        self.requests.receive_with(options).await
    }

    /// Waits for `what`, showing signs of life.
    async fn alive<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = &mut what => {
                    self.meter.beat();
                    return done;
                }
                _ = heartbeat.tick() => self.meter.beat(),
            }
        }
    }
}

/// The requests of one run. Dropping it ends them all.
struct Crew<Q, O> {
    equipment: Arc<Equipment<Q, O>>,
    flights: JoinSet<()>,
    drained: CancellationToken,
}

impl<Q, O> Crew<Q, O>
where
    Q: Clone + Send + Sync + 'static,
    O: Send + Sync + 'static,
{
    fn launch(&mut self, messages: Requests<Q, O>, called: Instant) {
        let received = Received { called, returned: Instant::now() };
        for message in messages {
            let flight = Flight {
                message,
                received,
                equipment: Arc::clone(&self.equipment),
                drained: self.drained.clone(),
                present: self.equipment.meter.in_flight(),
            };
            self.flights.spawn(flight.run());
        }
    }

    /// Waits until there is a free place; gives how many there are.
    async fn free_places(&mut self, places: usize) -> usize {
        while let Some(landed) = self.flights.try_join_next() {
            report(landed);
        }
        while self.flights.len() >= places {
            if let Some(landed) = self.flights.join_next().await {
                report(landed);
            }
        }
        places - self.flights.len()
    }

    async fn finish(&mut self) {
        while let Some(landed) = self.flights.join_next().await {
            report(landed);
        }
    }

    /// Lets what runs finish; gives back what does not, in time.
    async fn drain(&mut self, options: &LoopOptions) {
        if timeout(options.drain, self.finish()).await.is_ok() {
            return;
        }
        self.drained.cancel();
        if timeout(options.grace + SETTLING, self.finish()).await.is_err() {
            let left = self.flights.len();
            warn!(left, "not everything ended: what is left comes back by its deadline");
        }
    }
}

fn report(landed: Result<(), JoinError>) {
    if let Err(defect) = landed {
        error!(%defect, "a request was left alone: it comes back by its deadline");
    }
}

impl<Q, O> Clone for MainLoop<Q, O> {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            handler: Arc::clone(&self.handler),
            responses: self.responses.clone(),
            options: self.options.clone(),
            stop: self.stop.clone(),
            meter: Arc::clone(&self.meter),
        }
    }
}

impl<Q, O> fmt::Debug for MainLoop<Q, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MainLoop")
            .field("requests", &self.requests)
            .field("options", &self.options)
            .field("health", &self.meter.read())
            .finish_non_exhaustive()
    }
}

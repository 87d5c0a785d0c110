//! Calls to a service, through whichever door: how long they may take, and what is tried again.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::time::Duration;

use mailbox_wire::call::Request;
use mailbox_wire::json::{ReceiveRequest, Received};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::capability_file::CapabilityFile;
use super::config::RemoteConfig;
use super::convert;
use super::door::{Coming, Door, Failed, Outcome};
use crate::error::{Error, ErrorKind, Result, Retry};

/// Shortest and longest pause before a service is tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Longer than anybody waits; an `Instant` cannot hold much more.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
/// Most that is read of an answer.
pub(super) const ANSWER: usize = 64 * 1024 * 1024;
/// Largest payload: what can be sent has to get back, in base64 and with all that is said about it.
pub(super) const PAYLOAD: usize = 32 * 1024 * 1024;

/// A service.
#[derive(Debug)]
pub(super) struct Calls {
    door: Box<dyn Door>,
    patience: Duration,
    timeout: Duration,
    /// Where the capability is, if it may be replaced there.
    file: Option<CapabilityFile>,
}

/// Whether a call that may have been carried out can be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Again {
    /// It can: a second time changes nothing.
    Yes,
    /// It cannot.
    No,
}

impl Calls {
    pub(super) fn new(
        door: Box<dyn Door>,
        config: &RemoteConfig,
        file: Option<CapabilityFile>,
    ) -> Self {
        Self { door, patience: config.patience.min(FAR), timeout: config.timeout, file }
    }

    pub(super) fn door(&self) -> &dyn Door {
        &*self.door
    }

    /// Asks, again if that does no harm and may help.
    pub(super) async fn ask<A: Answer>(&self, request: &Request, again: Again) -> Result<A> {
        self.try_ask(request, again).await.map(|(answer, _)| answer).map_err(|failed| failed.error)
    }

    /// The same, for one who has to know what is known if there is no answer; and if there is one,
    /// whether an attempt before may have been carried out, whatever the answer says.
    pub(super) async fn try_ask<A: Answer>(
        &self,
        request: &Request,
        again: Again,
    ) -> Result<(A, bool), Failed> {
        let attempt = || self.within(Duration::ZERO, self.door.ask(request));
        let reply = self.persist(again, None, attempt).await.and_then(|(reply, is_open_before)| {
            let message = "the service answers something that was not asked";
            let answer = A::of(reply).map(|answer| (answer, is_open_before));
            answer.ok_or_else(|| Failed::unusable(Error::new(ErrorKind::Internal, message)))
        });
        reply.map_err(|failed| if changes(request) { failed.doubted() } else { failed })
    }

    /// Receives, for one who may want to leave before the answer is there.
    pub(super) async fn receive(
        &self,
        request: &ReceiveRequest,
        wait: Duration,
        stop: &CancellationToken,
    ) -> Result<Received> {
        let start = Instant::now();
        // W1: who has waited for a while already, in vain, waits for the rest.
        let attempt = || async {
            let waited = Some(start.elapsed()).filter(|waited| *waited >= PAUSE.0);
            let rest = wait.saturating_sub(waited.unwrap_or_default());
            let wait_ms = request.wait_ms.map(|wait| wait.min(convert::millis(rest)));
            let request = ReceiveRequest { wait_ms, ..request.clone() };
            self.within(rest, self.door.receive(&request, stop)).await
        };
        let received = self.persist(Again::No, Some(stop), attempt).await;
        received.map(|(received, _)| received).map_err(|failed| failed.error)
    }

    /// Opens a stream.
    pub(super) async fn stream(&self, request: &ReceiveRequest) -> Result<Box<dyn Coming>> {
        let mut is_renewed = false;
        loop {
            let edition = self.edition();
            let opened = self.within(Duration::ZERO, self.door.stream(request)).await;
            let Err(failed) = opened else { return opened.map_err(|failed| failed.error) };
            if !self.renew(&failed, edition, &mut is_renewed).await {
                return Err(failed.error);
            }
        }
    }

    /// Which capability of those in the file is used.
    pub(super) fn edition(&self) -> u64 {
        self.file.as_ref().map_or(0, CapabilityFile::edition)
    }

    /// Whether a call was refused because of its capability, and there is another one since: once,
    /// so that nobody tries for ever.
    async fn renew(&self, failed: &Failed, edition: u64, is_renewed: &mut bool) -> bool {
        if failed.outcome != Outcome::Unauthorized || std::mem::replace(is_renewed, true) {
            return false;
        }
        self.renew_since(edition).await
    }

    /// How long an answer may take.
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether there is another capability than that of this edition, which is not good any more.
    pub(super) async fn renew_since(&self, edition: u64) -> bool {
        let Some(file) = &self.file else { return false };
        file.renew(edition, |capability| self.door.authorize(capability)).await
    }

    /// Longest that a call takes which waits for others before it: those, and itself.
    pub(super) fn longest(&self) -> Duration {
        self.timeout.saturating_mul(2).saturating_add(self.patience).min(FAR)
    }

    /// Makes attempts until one succeeds, or another would do harm or not help. With an answer:
    /// whether an attempt before may have been carried out.
    async fn persist<T, F>(
        &self,
        again: Again,
        stop: Option<&CancellationToken>,
        attempt: impl Fn() -> F + Send,
    ) -> Result<(T, bool), Failed>
    where
        F: Future<Output = Result<T, Failed>> + Send,
    {
        // A receive waits for long by itself: what counts is for how long it fails.
        let mut give_up = stop.is_none().then(|| Instant::now() + self.patience);
        let (mut pause, mut is_renewed, mut is_open_before) = (PAUSE.0, false, false);
        loop {
            let (edition, begun) = (self.edition(), Instant::now());
            let failed = match attempt().await {
                Ok(answer) => return Ok((answer, is_open_before)),
                Err(failed) => Failed { is_open_before, ..failed },
            };
            is_open_before |= failed.is_open();
            if stop.is_some() && failed.is_said && begun.elapsed() > PAUSE.1 {
                // It has waited there for a while, so it was well in between: it fails anew.
                (give_up, pause) = (None, PAUSE.0);
            }
            if self.renew(&failed, edition, &mut is_renewed).await {
                continue;
            }
            let is_void = failed.is_void();
            let may_help =
                failed.error.kind() == ErrorKind::Connection && (is_void || again == Again::Yes);
            let advice = match failed.error.retry() {
                Retry::After(time) => time.min(PAUSE.1),
                Retry::Now | Retry::Never => Duration::ZERO,
            };
            let until = *give_up.get_or_insert_with(|| Instant::now() + self.patience);
            let rest = until.saturating_duration_since(Instant::now());
            let next = if is_void { pause } else { pause.max(advice) };
            if !may_help || rest < next {
                return Err(failed);
            }
            match stop {
                None => sleep(next).await,
                Some(stop) => {
                    let slept = stop.run_until_cancelled(sleep(next)).await;
                    slept.ok_or_else(Failed::given_up)?;
                }
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// One attempt, which the service takes `wait` for in any case.
    async fn within<T>(
        &self,
        wait: Duration,
        attempt: impl Future<Output = Result<T, Failed>> + Send,
    ) -> Result<T, Failed> {
        let deadline = Instant::now() + self.timeout.saturating_add(wait).min(FAR);
        timeout_at(deadline, attempt).await.unwrap_or_else(|_| {
            let message = format!("the service at {} does not answer", self.door.base());
            Err(Failed::in_doubt(Error::new(ErrorKind::Connection, message)))
        })
    }
}

impl Failed {
    /// The same, of a call that changes something. Who made it has to learn that it may have taken
    /// effect: of no other kind than those that leave it open, whatever is wrong with the answer.
    pub(super) fn doubted(self) -> Self {
        if !self.is_open() && !self.is_open_before {
            return self;
        }
        // What the service has said, or why the last attempt came to nothing, stays as it is.
        if !self.is_open() || self.outcome == Outcome::Refused {
            return Self { error: self.error.with_doubt(), ..self };
        }
        let message = format!("{}: whether the call took effect is in doubt", self.error.message());
        let error = Error::new(ErrorKind::Connection, message).with_doubt();
        let error = match self.error.source() {
            Some(source) => error.with_source(io::Error::other(source.to_string())),
            None => error,
        };
        Self { is_open_before: self.is_open_before, ..Self::in_doubt(error) }
    }
}

/// Whether this changes something, so that it matters whether it was carried out.
const fn changes(request: &Request) -> bool {
    match request {
        Request::Send(_)
        | Request::SendBatch(_)
        | Request::Settle(_)
        | Request::SettleBatch(_)
        | Request::Configure(_)
        | Request::Remove(_)
        | Request::Purge(_)
        | Request::Reprocess(_)
        | Request::DeleteDead(_)
        | Request::Mint(_)
        | Request::Revoke(_)
        | Request::Rotate(_) => true,
        Request::Receive(_)
        | Request::ReceiveStream(_)
        | Request::Topics(_)
        | Request::Topic(_)
        | Request::Peek(_)
        | Request::LookUp(..)
        | Request::Message(_)
        | Request::Dead(_)
        | Request::Abilities => false,
    }
}

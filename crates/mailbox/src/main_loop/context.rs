//! What a handler knows about the request it is handling, beside the request itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::request::MainLoopRequest;
use super::result::FailureKind;
use crate::timestamp::Timestamp;

/// One request being handled. A cheap handle: clone it into whatever the handler starts.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    request_id: Uuid,
    created_at: Timestamp,
    delivery_count: u32,
    attributes: BTreeMap<String, String>,
    deadline: Option<Timestamp>,
    units: Option<u64>,
    cut_off: Option<CutOff>,
    told_to_stop: CancellationToken,
    /// A lock for two small fields that are never held over an await.
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    spent: u64,
    session_id: Option<String>,
}

/// When the loop gives up on a handler, and what it says then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutOff {
    pub(crate) at: Instant,
    pub(crate) kind: FailureKind,
}

impl CutOff {
    /// The earlier of the request's deadline and the end of its time, which begins now.
    fn of<Q>(request: &MainLoopRequest<Q>) -> Option<Self> {
        let now = Instant::now();
        let ends = |left: Option<Duration>, kind| {
            // A time that no clock can hold is no bound.
            left.and_then(|left| now.checked_add(left)).map(|at| Self { at, kind })
        };
        let left = request.deadline.map(|deadline| deadline.since(Timestamp::now()));
        let deadline = ends(left, FailureKind::DeadlineExceeded);
        let time = request.budget.and_then(|budget| budget.time);
        let budget = ends(time, FailureKind::BudgetExceeded);
        deadline.into_iter().chain(budget).min_by_key(|cut_off| cut_off.at)
    }
}

impl Context {
    /// A context of no loop, as of a first delivery: for tests of handlers.
    #[must_use]
    pub fn detached<Q>(request: &MainLoopRequest<Q>) -> Self {
        Self::new(request, 1, BTreeMap::new(), CancellationToken::new())
    }

    pub(crate) fn new<Q>(
        request: &MainLoopRequest<Q>,
        delivery_count: u32,
        attributes: BTreeMap<String, String>,
        told_to_stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            request_id: request.request_id,
            created_at: request.created_at,
            delivery_count,
            attributes,
            deadline: request.deadline,
            units: request.budget.and_then(|budget| budget.units),
            cut_off: CutOff::of(request),
            told_to_stop,
            notes: Mutex::default(),
        }))
    }

    /// The request's identity. The same at every delivery: what makes a handler idempotent.
    #[must_use]
    pub fn request_id(&self) -> Uuid {
        self.0.request_id
    }

    /// When the request was made.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.0.created_at
    }

    /// 1 at the first delivery (D3).
    #[must_use]
    pub fn delivery_count(&self) -> u32 {
        self.0.delivery_count
    }

    /// What the client said beside the request (D9).
    #[must_use]
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.0.attributes
    }

    /// When nobody is interested any more.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.0.deadline
    }

    /// How long until the loop cuts the handler off, by its deadline or its budget of time.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.0.cut_off.map(|cut_off| cut_off.at.saturating_duration_since(Instant::now()))
    }

    /// Takes `units` from the request's budget. Without a budget of units it only counts.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if there are not that many left; then nothing is taken. With `?` it
    /// becomes a failure of kind [`FailureKind::BudgetExceeded`].
    pub fn spend(&self, units: u64) -> Result<(), BudgetExceeded> {
        let mut notes = self.0.notes.lock();
        let after = notes.spent.saturating_add(units);
        match self.0.units {
            Some(most) if after > most => Err(BudgetExceeded::new(units, most - notes.spent)),
            _ => {
                notes.spent = after;
                Ok(())
            }
        }
    }

    /// Units spent so far.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.0.notes.lock().spent
    }

    /// Units left, if the request has a budget of units.
    #[must_use]
    pub fn units_left(&self) -> Option<u64> {
        self.0.units.map(|most| most - self.spent().min(most))
    }

    /// Whether the handler has been told to stop: its lease is lost, so that somebody else will do
    /// the work again, or the loop stops and its drain time is over.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.told_to_stop.is_cancelled()
    }

    /// Ends when the handler is told to stop. After that it has the loop's `grace` to end by
    /// itself, and is cut off then.
    ///
    /// # Cancel safety
    /// Safe: it only waits.
    pub async fn cancelled(&self) {
        self.0.told_to_stop.cancelled().await;
    }

    /// The result will carry this session id.
    pub fn set_session_id(&self, session_id: impl Into<String>) {
        self.0.notes.lock().session_id = Some(session_id.into());
    }

    pub(crate) fn session_id(&self) -> Option<String> {
        self.0.notes.lock().session_id.clone()
    }

    pub(crate) fn cut_off(&self) -> Option<CutOff> {
        self.0.cut_off
    }

    pub(crate) fn tell_to_stop(&self) {
        self.0.told_to_stop.cancel();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("request_id", &self.0.request_id)
            .field("delivery_count", &self.0.delivery_count)
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// A request's budget has fewer units left than were to be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetExceeded {
    /// What was to be spent.
    pub wanted: u64,
    /// What there was.
    pub left: u64,
}

impl BudgetExceeded {
    pub(crate) const fn new(wanted: u64, left: u64) -> Self {
        Self { wanted, left }
    }
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, left } = self;
        write!(f, "budget exceeded: {wanted} units wanted, {left} left")
    }
}

impl std::error::Error for BudgetExceeded {}

#[cfg(test)]
mod tests {
    use super::super::request::Budget;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn spending_stops_at_the_budget_and_takes_nothing_beyond() {
        let request = MainLoopRequest::new(()).with_budget(Budget::new().with_units(5));
        let context = Context::detached(&request);
        context.spend(3).unwrap();
        assert_eq!(context.spend(3), Err(BudgetExceeded { wanted: 3, left: 2 }));
        context.spend(2).unwrap();
        assert_eq!((context.spent(), context.units_left()), (5, Some(0)));
        assert!(context.spend(u64::MAX).is_err());
        let free = Context::detached(&MainLoopRequest::new(()));
        free.spend(u64::MAX).unwrap();
        free.spend(1).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_deadline_and_time_cuts_off() {
        let soon = Timestamp::now().after(Duration::from_secs(10));
        let budget = Budget::new().with_time(Duration::from_secs(3));
        let request = MainLoopRequest::new(()).with_deadline(soon).with_budget(budget);
        let kind = |request: &MainLoopRequest<()>| {
            Context::detached(request).cut_off().map(|cut_off| cut_off.kind)
        };
        assert_eq!(kind(&request), Some(FailureKind::BudgetExceeded));
        let wide = Budget::new().with_time(Duration::MAX);
        let request = request.with_budget(wide);
        assert_eq!(kind(&request), Some(FailureKind::DeadlineExceeded));
        assert!(Context::detached(&request).time_left().unwrap() <= Duration::from_secs(10));
        assert_eq!(kind(&MainLoopRequest::new(()).with_budget(wide)), None);
    }
}

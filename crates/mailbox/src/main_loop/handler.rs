//! What does the work.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::context::Context;
use super::result::HandlerFailure;

/// Handles requests: turns a `Q` into an `O`. Every `Fn(Q, Context)` that gives such a future is
/// one, so most handlers are closures. Where the compiler cannot infer the error type, say it with
/// the result: `Ok::<_, HandlerFailure>(..)`.
///
/// ```
/// use mailbox::main_loop::{Context, Handler, HandlerFailure};
///
/// fn check(_: impl Handler<String, usize>) {}
/// check(|text: String, _: Context| async move { Ok::<_, HandlerFailure>(text.len()) });
/// check(|text: String, context: Context| async move {
///     context.spend(1)?;
///     text.parse::<usize>().map_err(HandlerFailure::from)
/// });
/// ```
///
/// Deliveries are at least once, so a handler can meet the same request twice, even at the same
/// time after a lost lease: make it idempotent by
/// [`Context::request_id`](super::Context::request_id).
pub trait Handler<Q, O>: Send + Sync + 'static {
    /// What goes wrong. Its text is sent to the client. A [`HandlerFailure`] keeps its kind.
    type Error: fmt::Display + Send + 'static;

    /// Handles one request.
    ///
    /// # Errors
    /// An error is an answer like any other: it is replied, and the request is done.
    ///
    /// # Cancel safety
    /// The loop drops this future when the request's time is over or the loop must end.
    fn handle(
        &self,
        request: Q,
        context: Context,
    ) -> impl Future<Output = Result<O, Self::Error>> + Send;
}

impl<Q, O, E, F, Fut> Handler<Q, O> for F
where
    F: Fn(Q, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send,
    E: fmt::Display + Send + 'static,
{
    type Error = E;

    fn handle(&self, request: Q, context: Context) -> impl Future<Output = Result<O, E>> + Send {
        self(request, context)
    }
}

type Handling<O> = Pin<Box<dyn Future<Output = Result<O, HandlerFailure>> + Send>>;

/// A handler whose type is forgotten.
pub(crate) type AnyHandler<Q, O> = Arc<dyn Fn(Q, Context) -> Handling<O> + Send + Sync>;

/// Forgets the type. The handler's own code, before its first await too, runs when the future is
/// polled: a panic there is the handler's.
pub(crate) fn any<Q, O, H>(handler: H) -> AnyHandler<Q, O>
where
    Q: Send + 'static,
    O: 'static,
    H: Handler<Q, O>,
{
    let handler = Arc::new(handler);
    Arc::new(move |request, context| {
        let handler = Arc::clone(&handler);
        Box::pin(async move { handler.handle(request, context).await.map_err(HandlerFailure::of) })
    })
}

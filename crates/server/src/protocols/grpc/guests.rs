//! What anybody may ask over gRPC: how the service is, and what it can be asked. Invariant: few of
//! these calls are open at a time, none of them says much or for long, and none outlives the
//! service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::Limited;
use mailbox::ErrorKind;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use super::refusal::{refused, status};
use crate::admission::Asks;
use crate::failure::Failure;
use crate::listen::Peer;
use crate::protocols::http::Paced;
use crate::protocols::http::exchange::CorrId;
use crate::service::Service;

/// All that may be said in one call.
const SMALL: usize = 16 * 1024;
/// Longest that one who asks what can be asked keeps asking.
const OPEN_FOR: Duration = Duration::from_secs(60);

/// Answers guests with what another service says.
pub(super) fn guests<S, B>(service: &Arc<Service>, asks: Asks, answers: S) -> MethodRouter
where
    S: tower_service::Service<Request, Response = http::Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let service = Arc::clone(service);
    post(move |request: Request| {
        let (service, answers) = (Arc::clone(&service), answers.clone());
        async move { answer(&service, asks, answers, request).await }
    })
}

async fn answer<S, B>(
    service: &Arc<Service>,
    asks: Asks,
    mut answers: S,
    request: Request,
) -> Response
where
    S: tower_service::Service<Request, Response = http::Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let corr_id = request.extensions().get::<CorrId>().map(|id| Arc::clone(&id.0));
    let corr_id = corr_id.unwrap_or_default();
    let peer = request.extensions().get::<Arc<Peer>>();
    let guest = match peer.map(|peer| service.admission.guests.come(peer, asks)) {
        Some(Ok(guest)) => guest,
        Some(Err(error)) => return refused(&error.into(), &corr_id),
        None => {
            return refused(&Failure::new(ErrorKind::Internal, "a call from nowhere"), &corr_id);
        }
    };
    // What is asked is over when the answer is: whoever reads it may wait for more of it.
    let over = service.draining.child_token();
    let patience = match asks {
        Asks::Little => service.settings().timeouts.read,
        Asks::Much => OPEN_FOR,
    };
    let asked = ended(over.clone(), patience);
    let request = request.map(|body| {
        let body = Body::new(Limited::new(body, SMALL));
        Body::new(Bounded { body, over: asked, is_over: false, end: None })
    });
    let Ok(response) = answers.call(request).await;
    let mut response = response.map(Body::new);
    if asks == Asks::Much {
        response = response.map(|body| until_over(service, body, over, patience, &corr_id));
    }
    response.extensions_mut().insert(guest);
    response.extensions_mut().insert(Paced);
    response
}

/// An answer that ends in time, and says why.
fn until_over(
    service: &Arc<Service>,
    body: Body,
    over: CancellationToken,
    patience: Duration,
    corr_id: &Arc<str>,
) -> Body {
    let (at, guard) = (ended(over.clone(), patience), over.drop_guard());
    let (service, corr_id) = (Arc::clone(service), Arc::clone(corr_id));
    let why = Box::new(move || match service.check_open() {
        Err(failure) => status(&failure, &corr_id),
        Ok(()) => Status::deadline_exceeded("it was open for too long: ask again"),
    });
    let end = Some(End { why, _guard: guard });
    Body::new(Bounded { body, over: at, is_over: false, end })
}

type Over = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When it is over, or that long has passed.
fn ended(over: CancellationToken, patience: Duration) -> Over {
    Box::pin(async move {
        let _ = tokio::time::timeout(patience, over.cancelled_owned()).await;
    })
}

/// A body that ends.
struct Bounded {
    body: Body,
    over: Over,
    is_over: bool,
    /// What is said then, of an answer.
    end: Option<End>,
}

struct End {
    why: Box<dyn Fn() -> Status + Send + Sync>,
    /// What was asked is over when the answer is.
    _guard: DropGuard,
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.is_over {
            if self.over.as_mut().poll(context).is_pending() {
                return Pin::new(&mut self.body).poll_frame(context);
            }
            (self.is_over, self.body) = (true, Body::empty());
        }
        let trailers = self.end.take().map(|end| {
            let mut trailers = HeaderMap::new();
            // It is a few words that are there already.
            let _ = (end.why)().add_header(&mut trailers);
            Ok(Frame::trailers(trailers))
        });
        Poll::Ready(trailers)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !(self.is_over && self.end.is_some())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::pending;
    use http_body_util::BodyExt;
    use mailbox::backends::memory::MemoryBackend;

    use super::*;
    use crate::auth::{Auth, Vault};
    use crate::config::Config;

    #[tokio::test]
    async fn an_answer_that_goes_on_for_too_long_ends_and_says_why() {
        let config = Config::default();
        let auth = Auth::open(Vault::memory(), config.capabilities.clone()).unwrap();
        let service = Service::new(MemoryBackend::new(), auth, config);
        let quiet = || Body::from_stream(pending::<Result<Bytes, Infallible>>());
        for is_stopping in [false, true] {
            let over = service.draining.child_token();
            let patience = Duration::from_secs(if is_stopping { 60 } else { 0 });
            let mut body = until_over(&service, quiet(), over.clone(), patience, &"one".into());
            if is_stopping {
                service.stop();
            }
            let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
            assert_eq!(trailers["grpc-status"], if is_stopping { "14" } else { "4" });
            assert!(body.frame().await.is_none());
            assert!(over.is_cancelled(), "nothing more is asked");
        }
    }
}

//! The client's side of a receive that can be given up: it says what to receive, and is open as
//! long as somebody waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use mailbox_wire::proto::v1::RecvRequest;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::codegen::tokio_stream::Stream;

/// What to receive, and nothing more until nobody waits.
pub(super) struct OpenSide {
    first: Option<RecvRequest>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl OpenSide {
    pub(super) fn new(first: RecvRequest, stop: &CancellationToken) -> Self {
        Self { first: Some(first), stop: Box::pin(stop.clone().cancelled_owned()) }
    }
}

impl Stream for OpenSide {
    type Item = RecvRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RecvRequest>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.stop.as_mut().poll(context).map(|()| None),
        }
    }
}

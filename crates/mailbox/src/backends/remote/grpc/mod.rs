//! The service over gRPC. A few HTTP/2 connections are shared by all calls; each stream has one of
//! its own, so that it holds up nobody else.

mod first_bytes;
mod heard;
mod link;
mod method;
mod open_side;
mod refusal;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt;

use async_trait::async_trait;
use http::HeaderValue;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{ReceiveRequest, Received};
use mailbox_wire::proto::v1::RecvRequest;
use tokio_util::sync::CancellationToken;

use super::door::{Coming, Door, Failed};
use super::http::bearer;
use super::pool::Pool;
use super::target::Target;
use crate::error::Result;

use link::Opener;
use method::{detached, not_understood};
use open_side::OpenSide;

/// Largest request that any service takes, and some room for what is around it. One that takes
/// larger payloads takes them in larger requests.
const MESSAGE: usize = 4 * 1024 * 1024 - 64 * 1024;

/// A service, and connections to it.
pub(super) struct GrpcDoor {
    pool: Pool<Opener>,
}

impl GrpcDoor {
    pub(super) fn new(
        target: Target,
        authorization: Option<HeaderValue>,
        connections: usize,
    ) -> Result<Self> {
        let opener = Opener::new(target, authorization)?;
        Ok(Self { pool: Pool::new(opener, connections) })
    }
}

#[async_trait]
impl Door for GrpcDoor {
    fn base(&self) -> String {
        self.pool.opener().target.base()
    }

    fn most(&self, max_body: usize) -> usize {
        max_body.min(MESSAGE)
    }

    fn gathers(&self) -> bool {
        true
    }

    fn authorize(&self, capability: &str) -> Result<()> {
        *self.pool.opener().authorization.write() = Some(bearer(capability)?);
        // Those that there are show the other one.
        self.pool.retire();
        Ok(())
    }

    async fn ask(&self, request: &Request) -> Result<Reply, Failed> {
        let (link, _place) = self.pool.place().await?;
        let (mut client, said) = link.client();
        let answer = method::call(&mut client, &said, request.clone()).await;
        link.used();
        answer
    }

    async fn receive(
        &self,
        request: &ReceiveRequest,
        stop: &CancellationToken,
    ) -> Result<Received, Failed> {
        let waits = request.wait_ms.is_some_and(|wait| wait > 0);
        let placed =
            async { if waits { self.pool.waiting_place().await } else { self.pool.place().await } };
        let placed = stop.run_until_cancelled(placed).await;
        let (link, _place) = placed.ok_or_else(Failed::given_up)??;
        let request = RecvRequest::from(request.clone());
        let (mut client, said) = link.client();
        let answer = if waits {
            // Closed when nobody waits any more, after which what there is by then still comes; and
            // when it has come.
            let over = stop.child_token();
            let _closed = over.clone().drop_guard();
            client.recv_while_open(OpenSide::new(request, &over)).await
        } else {
            client.recv(request).await
        };
        link.used();
        match detached(answer, &said)? {
            Reply::Received(received) => Ok(received),
            _ => Err(Failed::unusable(not_understood())),
        }
    }

    async fn stream(&self, request: &ReceiveRequest) -> Result<Box<dyn Coming>, Failed> {
        stream::open(self.pool.opener(), request.clone()).await
    }
}

impl fmt::Debug for GrpcDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.pool.opener().target;
        f.debug_struct("GrpcDoor").field("target", target).finish_non_exhaustive()
    }
}

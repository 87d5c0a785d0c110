//! The service over OAP/1, with protobuf. A few connections are shared by all calls: many requests
//! are in flight on each, and answers come in whatever order.
//! Each stream has a connection of its own, so that it holds up nobody else.

mod answered;
mod asking;
mod flight;
mod link;
mod reading;
mod stream;
#[cfg(test)]
mod tests;
mod writing;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{ReceiveRequest, Received};
use mailbox_wire::proto::Asked;
use parking_lot::RwLock;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::capability;
use super::config::RemoteConfig;
use super::door::{Coming, Door, Failed};
use super::pool::Pool;
use super::receive::LEAVE_WITHIN;
use super::target::Target;
use crate::error::Result;

use answered::not_understood;
use link::Opener;

/// A service, and connections to it.
pub(super) struct OapDoor {
    pool: Pool<Opener>,
}

impl OapDoor {
    pub(super) fn new(target: Target, config: &RemoteConfig) -> Result<Self> {
        let capability = framed(config.capability.as_deref().unwrap_or_default())?;
        let opener = Opener { target, capability: RwLock::new(capability) };
        Ok(Self { pool: Pool::new(opener, config.connections) })
    }
}

/// A capability as it is in a frame.
fn framed(capability: &str) -> Result<Bytes> {
    Ok(Bytes::copy_from_slice(capability::checked(capability)?.as_bytes()))
}

#[async_trait]
impl Door for OapDoor {
    fn base(&self) -> String {
        self.pool.opener().target.base()
    }

    fn gathers(&self) -> bool {
        true
    }

    fn authorize(&self, capability: &str) -> Result<()> {
        *self.pool.opener().capability.write() = framed(capability)?;
        // Those that there are have shown the other one.
        self.pool.retire();
        Ok(())
    }

    async fn ask(&self, request: &Request) -> Result<Reply, Failed> {
        let (link, place) = self.pool.place().await?;
        let mut asking = link.ask(request.clone().into(), place).await?;
        asking.answer().await?.reply()
    }

    async fn receive(
        &self,
        request: &ReceiveRequest,
        stop: &CancellationToken,
    ) -> Result<Received, Failed> {
        let waits = request.wait_ms.is_some_and(|wait| wait > 0);
        let asked = async {
            let place = async || {
                if waits { self.pool.waiting_place().await } else { self.pool.place().await }
            };
            let (link, place) = place().await?;
            link.ask(Asked::Call(Request::Receive(request.clone())), place).await
        };
        let asking = stop.run_until_cancelled(asked).await;
        let mut asking = asking.ok_or_else(Failed::given_up)??;
        let answered = tokio::select! {
            biased;
            answered = asking.answer() => answered,
            () = stop.cancelled() => {
                asking.cancel();
                match timeout(LEAVE_WITHIN, asking.answer()).await {
                    Ok(answered) => answered,
                    Err(_) => {
                        // It does not do as it should: nobody else need find that out.
                        asking.retire();
                        asking.answer().await
                    }
                }
            }
        };
        match answered?.reply()? {
            Reply::Received(received) => Ok(received),
            _ => Err(Failed::unusable(not_understood())),
        }
    }

    async fn stream(&self, request: &ReceiveRequest) -> Result<Box<dyn Coming>, Failed> {
        stream::open(self.pool.opener(), request.clone()).await
    }
}

impl fmt::Debug for OapDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OapDoor")
            .field("target", &self.pool.opener().target)
            .finish_non_exhaustive()
    }
}

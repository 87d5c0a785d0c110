//! OAP/1: frames over TCP, many requests in flight on one connection, answered in any order. The
//! frames themselves are in [`mailbox_wire::oap`], what is asked in [`mailbox_wire::call`].

mod connection;
mod finishing;
mod input;
mod output;
mod question;
mod run;
mod session;
mod taking;
mod work;

use std::future::poll_fn;
use std::sync::Arc;

use mailbox::{Error, ErrorKind, Retry};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::failure::Failure;
use crate::listen::{Peer, Timed};
use crate::service::Service;
use connection::Connection;
use output::{Output, To};

/// Serves one connection until it ends, or the service does.
pub(crate) async fn serve<S>(
    stream: Timed<S>,
    peer: Arc<Peer>,
    service: &Arc<Service>,
    is_tls: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connection = Connection::new(stream, peer, service, is_tls);
    let told = service.draining.clone();
    let mut told = std::pin::pin!(told.cancelled());
    let mut is_listening = false;
    poll_fn(|context| {
        // Once is enough for being woken; each time would be a lock that all connections share.
        if !is_listening {
            is_listening = true;
            let _ = told.as_mut().poll(context);
        }
        connection.poll(context)
    })
    .await;
    // Over for the client; what it has said since then is read and forgotten, because a connection
    // that is closed with something unread takes back what was written last.
    connection.linger().await;
}

/// What a client hears for whom there is no place.
pub(crate) fn no_place() -> Vec<u8> {
    let error = Error::new(ErrorKind::Connection, "too many connections are open")
        .with_retry(Retry::After(std::time::Duration::from_secs(1)));
    let failure = Failure { reason: Some("no_place"), ..error.into() };
    let mut output = Output::default();
    output.failure(To::nobody(), &failure, "none");
    output.into_bytes()
}

//! Taking connections in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::{Listener, Peer, Protocol, Source, Timed};
use crate::protocols::{http, oap};

/// How long to wait when no connection can be taken in, for want of descriptors for example.
const BREATH: Duration = Duration::from_millis(50);

/// What is needed to take a connection in.
#[derive(Clone)]
struct Door {
    handler: http::Handler,
    speaks: Protocol,
    connections: TaskTracker,
}

/// Takes connections in until the service stops; those that are open stay.
pub(crate) async fn accept_all(
    listener: Listener,
    handler: http::Handler,
    connections: TaskTracker,
) {
    let draining = handler.service().draining.clone();
    let Listener { source, speaks } = listener;
    let door = Door { handler, speaks, connections };
    let accept = async {
        match source {
            Source::Tcp(listener, tls) => accept_tcp(&listener, tls, &door).await,
            Source::Unix(listener, path) => {
                let _gone = RemoveOnDrop(path);
                accept_unix(&listener, &door).await;
            }
        }
    };
    tokio::select! {
        () = draining.cancelled() => {}
        () = accept => {}
    }
}

struct RemoveOnDrop(std::path::PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // Whoever starts next replaces it anyway.
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn accept_tcp(listener: &TcpListener, tls: Option<TlsAcceptor>, door: &Door) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection in");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let ip = address.ip().to_canonical();
        let service = door.handler.service();
        let Some(place) = service.admission.connection(Some(ip)) else {
            if tls.is_none() {
                refuse(&stream, door.speaks);
            }
            continue;
        };
        // Small answers shall not wait for more to send.
        let _ = stream.set_nodelay(true);
        let (own, tls) = (door.clone(), tls.clone());
        door.connections.spawn(async move {
            match tls {
                None => converse(stream, Some(ip), own, false).await,
                Some(tls) => {
                    let patience = own.handler.service().config().timeouts.read;
                    if let Ok(Ok(stream)) = tokio::time::timeout(patience, tls.accept(stream)).await
                    {
                        converse(stream, Some(ip), own, true).await;
                    }
                }
            }
            drop(place);
        });
    }
}

async fn accept_unix(listener: &UnixListener, door: &Door) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let Some(place) = door.handler.service().admission.connection(None) else { continue };
        let own = door.clone();
        door.connections.spawn(async move {
            converse(stream, None, own, false).await;
            drop(place);
        });
    }
}

/// Says that there is no place, if that can be said without waiting.
fn refuse(stream: &TcpStream, speaks: Protocol) {
    let _ = match speaks {
        Protocol::Http => stream.try_write(http::NO_PLACE),
        Protocol::Oap => stream.try_write(&oap::no_place()),
    };
}

async fn converse<S>(stream: S, ip: Option<IpAddr>, door: Door, is_tls: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let timeouts = door.handler.service().config().timeouts.clone();
    let peer = Arc::new(Peer::new(ip, timeouts.write));
    let stream = Timed::new(stream, Arc::clone(&peer), timeouts);
    match door.speaks {
        Protocol::Http => http::serve(stream, peer, door.handler).await,
        Protocol::Oap => oap::serve(stream, peer, door.handler.service(), is_tls).await,
    }
}

//! Taking connections in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::{Listener, Peer, Protocol, Source, Timed};
use crate::protocols::{http, oap};

/// How long to wait when no connection can be taken in, for want of descriptors for example.
const BREATH: Duration = Duration::from_millis(50);

/// How often a silent client is asked by the system whether it is there, and how long what it was
/// sent may go unacknowledged. One that has lost its power says no goodbye, and what it is sent
/// would be taken for delivered as long as the system repeats it, which is a quarter of an hour.
const ASK_EVERY: Duration = Duration::from_secs(15);
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

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
        prepare(&stream);
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

/// A connection without these works as well, until something breaks.
fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let ask = TcpKeepalive::new().with_time(ASK_EVERY).with_interval(ASK_EVERY);
    // Small answers shall not wait for more to send.
    let prepared = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&ask));
    #[cfg(target_os = "linux")]
    let prepared = prepared.and_then(|()| socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED)));
    if let Err(error) = prepared {
        tracing::debug!(%error, "a connection that may not notice that its client is gone");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that have lost their power were sent messages for a quarter of an hour.
    #[tokio::test]
    async fn the_system_looks_whether_the_other_end_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().unwrap() && socket.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), ASK_EVERY);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), ASK_EVERY);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
        }
    }
}

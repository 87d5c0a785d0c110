//! Taking connections in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::{Listener, Peer, Source, Timed};
use crate::protocols::http::{Handler, serve};

/// What a client hears for whom there is no place.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-type: application/json\r\nx-corr-id: none\r\n\
    content-length: 145\r\n\r\n\
    {\"code\":\"E_UNAVAILABLE\",\"message\":\"too many connections are open\",\
    \"corr_id\":\"none\",\"kind\":\"connection\",\"retry_after_ms\":1000,\
    \"reason\":\"no_place\"}";
/// How long to wait when no connection can be taken in, for want of descriptors for example.
const BREATH: Duration = Duration::from_millis(50);

/// Takes connections in until the service stops; those that are open stay.
pub(crate) async fn accept_all(listener: Listener, handler: Handler, connections: TaskTracker) {
    let draining = handler.service().draining.clone();
    let accept = async {
        match listener.into_source() {
            Source::Tcp(listener, tls) => accept_tcp(&listener, tls, &handler, &connections).await,
            Source::Unix(listener, path) => {
                let _gone = RemoveOnDrop(path);
                accept_unix(&listener, &handler, &connections).await;
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

async fn accept_tcp(
    listener: &TcpListener,
    tls: Option<TlsAcceptor>,
    handler: &Handler,
    connections: &TaskTracker,
) {
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
        let Some(place) = handler.service().admission.connection(Some(ip)) else {
            refuse(&stream, tls.is_none());
            continue;
        };
        // Small answers shall not wait for more to send.
        let _ = stream.set_nodelay(true);
        let (handler, tls) = (handler.clone(), tls.clone());
        connections.spawn(async move {
            match tls {
                None => converse(stream, Some(ip), handler).await,
                Some(tls) => {
                    let patience = handler.service().config().timeouts.read;
                    if let Ok(Ok(stream)) = tokio::time::timeout(patience, tls.accept(stream)).await
                    {
                        converse(stream, Some(ip), handler).await;
                    }
                }
            }
            drop(place);
        });
    }
}

async fn accept_unix(listener: &UnixListener, handler: &Handler, connections: &TaskTracker) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let Some(place) = handler.service().admission.connection(None) else { continue };
        let handler = handler.clone();
        connections.spawn(async move {
            converse(stream, None, handler).await;
            drop(place);
        });
    }
}

/// Says that there is no place, if that can be said without waiting.
fn refuse(stream: &TcpStream, is_plain: bool) {
    if is_plain {
        let _ = stream.try_write(NO_PLACE);
    }
}

async fn converse<S>(stream: S, ip: Option<IpAddr>, handler: Handler)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(Peer::new(ip));
    let timeouts = handler.service().config().timeouts.clone();
    serve(Timed::new(stream, Arc::clone(&peer), timeouts), peer, handler).await;
}

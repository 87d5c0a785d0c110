//! Connections behind TLS.

use std::time::Duration;

use bytes::Bytes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::Purged;
use mailbox_wire::proto::Asked;

use super::peer::{Peer, config, name, sent};
use crate::backend::{Backend, Outgoing};
use crate::backends::remote::RemoteBackend;
use crate::backends::remote::certificate::Certificate;
use crate::error::ErrorKind;

#[tokio::test]
async fn calls_go_over_tls_large_ones_too() {
    let certificate = Certificate::new();
    let mut peer = Peer::new().await;
    peer.tls = Some(certificate.acceptor(&[]));
    let mut config = config().with_ca(certificate.path());
    config.connections = 1;
    let (backend, mut conn) = peer.open(config).await;
    assert!(backend.address(&name("a")).starts_with("oaps://127.0.0.1:"));
    let (a, payload) = (name("a"), Bytes::from(vec![b'x'; 5 << 20]));
    let sends = backend.send(&a, vec![Outgoing::new(payload)]);
    let (results, ()) = tokio::join!(sends, async {
        let (id, asked) = conn.request().await.unwrap();
        let Asked::Call(Request::SendBatch(batch)) = asked else { panic!("{asked:?}") };
        conn.reply(id, sent(&batch)).await;
    });
    assert!(results.unwrap()[0].is_ok());
    let (purged, ()) = tokio::join!(backend.purge(&a), async {
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, Reply::Purged(Purged { removed: 1 })).await;
    });
    assert_eq!(purged.unwrap(), 1);
}

/// It was tried again and again, for as long as there was patience.
#[tokio::test]
async fn one_that_speaks_tls_is_said_to_speak_something_else() {
    let certificate = Certificate::new();
    let peer = Peer::new().await;
    let config = config().with_patience(Duration::from_secs(3600));
    let (url, acceptor) = (peer.url(), certificate.acceptor(&[]));
    let (opened, accepted) = tokio::join!(RemoteBackend::open_with(&url, config), async {
        acceptor.accept(peer.accept_raw().await).await
    });
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error:?}");
    assert!(error.to_string().contains("does not speak OAP/1"), "{error}");
    assert!(error.to_string().contains("oaps:"), "{error}");
    accepted.unwrap_err();
}

#[tokio::test]
async fn one_that_nobody_trusts_is_not_asked() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let peer = Peer::new().await;
    let url = peer.url().replace("oap:", "oaps:");
    // Patience does not help.
    let config = config().with_ca(other.path()).with_patience(Duration::from_secs(3600));
    let (opened, accepted) = tokio::join!(RemoteBackend::open_with(&url, config), async {
        certificate.acceptor(&[]).accept(peer.accept_raw().await).await
    });
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error:?}");
    assert!(error.to_string().contains("?ca=FILE"), "{error}");
    assert!(!format!("{error:#}").contains("in doubt"), "{error:#}");
    accepted.unwrap_err();
}

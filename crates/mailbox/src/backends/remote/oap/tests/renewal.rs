//! A capability that is replaced in its file.

use mailbox_wire::call::Reply;
use mailbox_wire::json::Purged;

use super::peer::{Conn, Peer, abilities, name, problem};
use crate::address::Address;
use crate::backend::Backend;
use crate::backends::remote::RemoteBackend;
use crate::error::ErrorKind;

/// Says that the capability is not good any more.
async fn refuse(conn: &mut Conn) {
    let (id, _) = conn.request().await.unwrap();
    let mut expired = problem("unauthorized");
    expired.reason = Some("expired".to_owned());
    conn.refuse(id, 401, &expired).await;
}

/// Nothing worked any more until whoever used it was started anew.
#[tokio::test]
async fn one_that_has_expired_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cap");
    std::fs::write(&file, "first\n").unwrap();
    let (peer, name) = (Peer::new().await, name("a"));
    let url = format!("{}/a?cap_file={}", peer.url(), file.display());
    let address = Address::parse(&url).unwrap();
    let (backend, mut conn) = tokio::join!(RemoteBackend::at(&address), async {
        let mut conn = peer.accept().await;
        assert_eq!(&conn.hello.cap[..], b"first");
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, Reply::Abilities(abilities())).await;
        conn
    });
    let backend = backend.unwrap();
    assert!(!format!("{backend:?}").contains("first"));
    // As long as it is the same, nothing is made again.
    let (failed, ()) = tokio::join!(backend.purge(&name), refuse(&mut conn));
    let error = failed.unwrap_err();
    assert_eq!((error.kind(), error.is_in_doubt()), (ErrorKind::Unauthorized, false));
    std::fs::write(&file, "second\n").unwrap();
    let (purged, mut conn) = tokio::join!(backend.purge(&name), async {
        refuse(&mut conn).await;
        assert!(conn.request().await.is_none(), "it was closed");
        let mut conn = peer.accept().await;
        assert_eq!(&conn.hello.cap[..], b"second");
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, Reply::Purged(Purged { removed: 7 })).await;
        conn
    });
    assert_eq!(purged.unwrap(), 7);
    // Once is enough, also if there is always another one.
    std::fs::write(&file, "third").unwrap();
    let (failed, _conn) = tokio::join!(backend.purge(&name), async {
        refuse(&mut conn).await;
        std::fs::write(&file, "fourth").unwrap();
        let mut conn = peer.accept().await;
        refuse(&mut conn).await;
        conn
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unauthorized);
}

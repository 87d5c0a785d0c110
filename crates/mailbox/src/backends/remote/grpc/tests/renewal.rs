//! A capability that is replaced in its file.

use mailbox_wire::call::Reply;
use mailbox_wire::json::Purged;
use tonic::Code;

use super::peer::{Peer, abilities, name, status};
use crate::address::Address;
use crate::backend::Backend;
use crate::backends::remote::RemoteBackend;

#[tokio::test]
async fn one_that_was_taken_back_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cap");
    std::fs::write(&file, "first\n").unwrap();
    let (peer, name) = (Peer::new().await, name("a"));
    let url = format!("{}/a?cap_file={}", peer.url(), file.display());
    let address = Address::parse(&url).unwrap();
    let (backend, mut conn) = tokio::join!(RemoteBackend::at(&address), async {
        let mut conn = peer.accept().await;
        let call = conn.call().await;
        assert_eq!(call.authorization.as_ref().unwrap(), "Bearer first");
        call.reply(Reply::Abilities(abilities()));
        conn
    });
    std::fs::write(&file, "second\n").unwrap();
    let backend = backend.unwrap();
    let (purged, _conns) = tokio::join!(backend.purge(&name), async {
        let revoked = status(Code::Unauthenticated, "unauthorized", Some("revoked"));
        conn.call().await.refuse(&revoked);
        let mut next = peer.accept().await;
        let call = next.call().await;
        assert_eq!(call.authorization.as_ref().unwrap(), "Bearer second");
        call.reply(Reply::Purged(Purged { removed: 7 }));
        (conn, next)
    });
    assert_eq!(purged.unwrap(), 7);
}

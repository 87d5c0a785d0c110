//! What is sent, or settled, one by one at the same time goes out together.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Problem, Purged};
use mailbox_wire::oap::{CHUNK, Flags};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, name};
use crate::backend::{Backend, Outgoing, Sent};
use crate::backends::remote::RemoteBackend;
use crate::backends::remote::calls::ANSWER;
use crate::backends::remote::gather::tests::{TIMEOUT, Told, gathering};
use crate::error::{ErrorKind, Result};

gathering!(OverOap);

/// Nobody else connects to it.
struct OverOap(Conn, #[expect(dead_code, reason = "kept open")] Peer);

impl Told for OverOap {
    type Call = u64;

    async fn open() -> (Arc<RemoteBackend>, Self) {
        let peer = Peer::new().await;
        let (backend, conn) = peer.open(single().with_timeout(TIMEOUT)).await;
        (backend, Self(conn, peer))
    }

    async fn next(&mut self) -> (u64, Request) {
        match self.0.request().await.unwrap() {
            (id, Asked::Call(request)) => (id, request),
            (_, other) => panic!("{other:?}"),
        }
    }

    async fn reply(&mut self, id: u64, reply: Reply) {
        self.0.reply(id, reply).await;
    }

    async fn refuse(&mut self, id: u64, problem: &Problem) {
        self.0.refuse(id, 403, problem).await;
    }

    async fn garble(&mut self, id: u64) {
        self.0.piece(Flags::RESP, 200, id, vec![0xff; 9]).await;
    }
}

fn message(at: usize) -> Vec<Outgoing> {
    vec![Outgoing::new(Bytes::from(format!("message-{at}")))]
}

/// The next request, which has to be a send: of which payloads.
async fn batch(conn: &mut Conn) -> (u64, mailbox_wire::json::SendBatchRequest) {
    match conn.request().await {
        Some((id, Asked::Call(Request::SendBatch(batch)))) => (id, batch),
        other => panic!("{other:?}"),
    }
}

fn one(result: Result<Vec<Result<Sent>>>) -> Result<String> {
    result.unwrap().remove(0).map(|sent| sent.id.to_string())
}

fn single() -> crate::backends::remote::RemoteConfig {
    let mut config = config();
    config.connections = 1;
    config
}

/// The answer is larger than what is kept of one: `TooLarge`. That was taken for a refusal, and
/// each message was sent again by itself.
#[tokio::test]
async fn a_batch_that_is_in_doubt_is_not_sent_again_one_by_one() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let sends = join_all((0..12).map(|at| backend.send(&name, message(at))));
    let (results, ()) = tokio::join!(sends, async {
        let (id, together) = batch(&mut conn).await;
        assert_eq!(together.messages.len(), 12);
        conn.piece(Flags::RESP | Flags::START, 200, id, Bytes::new()).await;
        for _ in 0..ANSWER / CHUNK + 1 {
            conn.piece(Flags::EVENT, 0, id, vec![0; CHUNK]).await;
        }
        conn.piece(Flags::RESP | Flags::END, 200, id, Bytes::new()).await;
    });
    for result in results {
        let error = one(result).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert!(error.to_string().contains("in doubt"), "{error}");
    }
    // The next request is another one.
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let (id, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Purge(_))), "{asked:?}");
        conn.reply(id, Reply::Purged(Purged { removed: 1 })).await;
    });
    assert_eq!(purged.unwrap(), 1);
}

#[tokio::test]
async fn nobody_waits_for_room_for_ever() {
    let peer = Peer::new().await;
    let (backend, _conn) = peer.open(single()).await;
    let local = backend.inner.local();
    let room = &local.sends.room;
    let all = u32::try_from(room.available_permits()).unwrap();
    let _taken = room.acquire_many(all).await.unwrap();
    tokio::time::pause();
    let error = one(backend.send(&name("a"), message(1)).await).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("never went out"), "{error}");
}

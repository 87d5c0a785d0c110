//! Which connection a call takes, and that none waits for one that does not come about.

use std::time::Duration;

use futures_util::future::{join_all, poll_immediate};
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::Purged;
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, name};
use crate::backend::Backend;

/// More calls than are no reason for another connection.
const MANY: usize = 10;
/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// The next request, which has to be a purge.
async fn purge(conn: &mut Conn) -> u64 {
    match conn.request().await.unwrap() {
        (id, Asked::Call(Request::Purge(_))) => id,
        (_, other) => panic!("{other:?}"),
    }
}

async fn answer(conn: &mut Conn, ids: Vec<u64>) {
    for id in ids {
        conn.reply(id, Reply::Purged(Purged { removed: 1 })).await;
    }
}

#[tokio::test]
async fn many_calls_are_spread_over_a_few_connections() {
    let peer = Peer::new().await;
    let (backend, mut first) = peer.open(config()).await;
    let name = name("a");
    let mut begun = Box::pin(join_all((0..MANY).map(|_| backend.purge(&name))));
    assert!(poll_immediate(&mut begun).await.is_none());
    let mut asked = Vec::new();
    for _ in 0..MANY {
        asked.push(purge(&mut first).await);
    }
    // It was made meanwhile. That its hello is answered may not have been read yet.
    let mut second = peer.accept().await;
    let mut is_used = false;
    for _ in 0..1000 {
        let (purged, ()) = tokio::join!(backend.purge(&name), async {
            let (conn, id) = tokio::select! {
                id = purge(&mut second) => {
                    is_used = true;
                    (&mut second, id)
                }
                id = purge(&mut first) => (&mut first, id),
            };
            answer(conn, vec![id]).await;
        });
        assert_eq!(purged.unwrap(), 1);
        if is_used {
            break;
        }
    }
    assert!(is_used);
    let (results, ()) = tokio::join!(begun, answer(&mut first, asked));
    assert!(results.into_iter().all(|purged| purged.is_ok()));
}

/// Calls waited for a second connection on which nobody said hello, although the first one had
/// places for them all.
#[tokio::test]
async fn nobody_waits_for_a_further_connection_while_there_are_places() {
    let peer = Peer::new().await;
    let (backend, mut first) = peer.open(config()).await;
    let name = name("a");
    let purges = join_all((0..2 * MANY).map(|_| backend.purge(&name)));
    let (results, mute) = tokio::join!(purges, async {
        let mut asked = Vec::new();
        for _ in 0..2 * MANY {
            asked.push(purge(&mut first).await);
        }
        let mute = peer.accept_raw().await;
        answer(&mut first, asked).await;
        mute
    });
    assert!(results.into_iter().all(|purged| purged.is_ok()));
    drop(mute);
}

#[tokio::test]
async fn one_that_could_not_be_made_is_not_tried_again_at_once() {
    let mut peer = Peer::new().await;
    peer.max_inflight = 32;
    let (backend, mut first) = peer.open(config()).await;
    let name = name("a");
    // Once it was closed; and once more, some seconds later.
    for attempts in [1, 0, 0, 1] {
        if attempts == 1 {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(6)).await;
            tokio::time::resume();
        }
        let purges = join_all((0..2 * MANY).map(|_| backend.purge(&name)));
        let (results, ()) = tokio::join!(purges, async {
            let mut asked = Vec::new();
            for _ in 0..2 * MANY {
                asked.push(purge(&mut first).await);
            }
            for _ in 0..attempts {
                drop(peer.accept_raw().await);
            }
            answer(&mut first, asked).await;
        });
        assert!(results.into_iter().all(|purged| purged.is_ok()));
        // Nobody else has come.
        assert!(poll_immediate(Box::pin(peer.accept_raw())).await.is_none());
    }
}

/// Whoever came when all places were taken waited for one connection, although another went on.
#[tokio::test]
async fn a_place_is_taken_on_whichever_connection_has_one_first() {
    let mut peer = Peer::new().await;
    peer.max_inflight = MANY as u32;
    let (backend, mut first) = peer.open(config()).await;
    let name = name("a");
    let purges = join_all((0..2 * MANY + 2).map(|_| backend.purge(&name)));
    let (results, ()) = tokio::join!(purges, async {
        let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
        for _ in 0..MANY {
            of_first.push(purge(&mut first).await);
        }
        let mut second = peer.accept().await;
        for _ in 0..MANY {
            of_second.push(purge(&mut second).await);
        }
        // Now each of the two is to make place for one of those who wait.
        for (conn, asked) in [(&mut second, &mut of_second), (&mut first, &mut of_first)] {
            answer(conn, asked.pop().into_iter().collect()).await;
            let next = tokio::time::timeout(SOON, purge(conn)).await;
            asked.push(next.expect("nobody waits for the other connection"));
        }
        answer(&mut first, of_first).await;
        answer(&mut second, of_second).await;
    });
    assert!(results.into_iter().all(|purged| purged.is_ok()));
}

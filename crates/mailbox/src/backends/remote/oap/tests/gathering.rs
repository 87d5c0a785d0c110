//! What is sent, or settled, one by one at the same time goes out together.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::future::{join_all, poll_immediate};
use mailbox_core::Verdict;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{BatchResult, Purged, SettleBatchRequest, SettleResult, SettledBatch};
use mailbox_wire::oap::{CHUNK, Flags};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, name, problem, sent};
use crate::backend::{Backend, Outgoing, Sent, Settlement};
use crate::backends::remote::calls::ANSWER;
use crate::error::{ErrorKind, Result};
use crate::id::ReceiptHandle;

const COUNT: usize = 1000;

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

fn texts(batch: &mailbox_wire::json::SendBatchRequest) -> Vec<String> {
    let payloads = batch.messages.iter().map(|message| message.payload_b64.0.to_vec());
    payloads.map(|payload| String::from_utf8(payload).unwrap()).collect()
}

fn one(result: Result<Vec<Result<Sent>>>) -> Result<String> {
    result.unwrap().remove(0).map(|sent| sent.id.to_string())
}

fn single() -> crate::backends::remote::RemoteConfig {
    let mut config = config();
    config.connections = 1;
    config
}

#[tokio::test]
async fn many_sends_are_few_requests_and_each_gets_its_own_result() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let sends = join_all((0..COUNT).map(|at| backend.send(&name, message(at))));
    let (results, all) = tokio::join!(sends, async {
        let mut all = Vec::new();
        while all.len() < COUNT {
            let (id, batch) = batch(&mut conn).await;
            assert_eq!(batch.topic.as_deref(), Some("a"));
            all.extend(texts(&batch));
            let mut reply = sent(&batch);
            if let (Reply::SentBatch(it), Some(at)) =
                (&mut reply, batch.messages.iter().position(|it| it.payload_b64.0.ends_with(b"7")))
            {
                it.results[at] = BatchResult::Refused { error: Box::new(problem("mailbox_full")) };
            }
            conn.reply(id, reply).await;
        }
        all
    });
    assert!(conn.frames < COUNT / 10, "{} frames", conn.frames);
    let expected: BTreeSet<String> = (0..COUNT).map(|at| format!("message-{at}")).collect();
    assert!(all.len() == COUNT && all.into_iter().collect::<BTreeSet<_>>() == expected);
    let mut refused = 0;
    for (at, result) in results.into_iter().enumerate() {
        match one(result) {
            Ok(id) => assert_eq!(id, format!("message-{at}")),
            Err(error) => {
                assert_eq!((error.kind(), at % 10), (ErrorKind::MailboxFull, 7));
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
}

#[tokio::test]
async fn those_who_gather_go_out_in_the_order_they_came() {
    /// More than fit into three requests.
    const WAITING: usize = 600;

    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let mut sends: Vec<_> =
        (0..WAITING).map(|at| Box::pin(backend.send(&name, message(at)))).collect();
    let mut in_flight = Vec::new();
    for (at, send) in sends.iter_mut().enumerate() {
        assert!(poll_immediate(send).await.is_none());
        if at < 2 {
            in_flight.push(batch(&mut conn).await);
        }
        // Who does too much at a time does not get into line until the next time.
        tokio::task::yield_now().await;
    }
    let (results, all) = tokio::join!(join_all(sends), async {
        let mut all = Vec::new();
        while let Some((id, answered)) = in_flight.pop() {
            conn.reply(id, sent(&answered)).await;
            if all.len() < WAITING - 2 {
                in_flight.push(batch(&mut conn).await);
                all.extend(texts(&in_flight.last().unwrap().1));
            }
        }
        all
    });
    assert!(results.into_iter().all(|result| one(result).is_ok()));
    let expected: Vec<String> = (2..WAITING).map(|at| format!("message-{at}")).collect();
    assert_eq!(all, expected);
    assert!(conn.frames < 10, "{} frames", conn.frames);
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
async fn an_answer_that_cannot_be_read_leaves_all_of_them_in_doubt() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let sends = join_all((0..3).map(|at| backend.send(&name, message(at))));
    let (results, ()) = tokio::join!(sends, async {
        let (id, _) = batch(&mut conn).await;
        conn.piece(Flags::RESP, 200, id, vec![0xff; 9]).await;
    });
    for result in results {
        let error = one(result).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert!(error.to_string().contains("in doubt"), "{error}");
    }
}

#[tokio::test]
async fn nobody_waits_for_room_for_ever() {
    let peer = Peer::new().await;
    let (backend, _conn) = peer.open(single()).await;
    let room = &backend.inner.sends.room;
    let all = u32::try_from(room.available_permits()).unwrap();
    let _taken = room.acquire_many(all).await.unwrap();
    tokio::time::pause();
    let error = one(backend.send(&name("a"), message(1)).await).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("never went out"), "{error}");
}

#[tokio::test]
async fn what_is_wrong_with_one_is_nothing_to_the_others() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let sends = join_all((0..8).map(|at| backend.send(&name, message(at))));
    let (results, ()) = tokio::join!(sends, async {
        let mut answered = 0;
        while answered < 8 {
            let (id, batch) = batch(&mut conn).await;
            if texts(&batch).contains(&"message-5".to_owned()) {
                conn.refuse(id, 403, &problem("forbidden")).await;
                answered += usize::from(batch.messages.len() == 1);
            } else {
                answered += batch.messages.len();
                conn.reply(id, sent(&batch)).await;
            }
        }
    });
    for (at, result) in results.into_iter().enumerate() {
        match one(result) {
            Ok(id) => assert_eq!(id, format!("message-{at}")),
            Err(error) => assert_eq!((error.kind(), at), (ErrorKind::Forbidden, 5)),
        }
    }
}

#[tokio::test]
async fn once_there_is_too_much_those_who_come_after_are_not_tried() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let sends = join_all((0..12).map(|at| backend.send(&name, message(at))));
    let (results, ()) = tokio::join!(sends, async {
        for expected in [12, 1, 1] {
            let (id, batch) = batch(&mut conn).await;
            assert_eq!(batch.messages.len(), expected);
            // Only the first is not too much.
            if texts(&batch) == ["message-0"] {
                conn.reply(id, sent(&batch)).await;
            } else {
                conn.refuse(id, 429, &problem("saturated")).await;
            }
        }
    });
    let good: Vec<bool> = results.into_iter().map(|result| one(result).is_ok()).collect();
    assert_eq!(good.iter().position(|is_good| *is_good), Some(0));
    assert_eq!(good.iter().filter(|is_good| **is_good).count(), 1);
}

#[tokio::test]
async fn those_that_can_be_repeated_and_those_that_cannot_go_out_apart() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let with_key = |at: usize| {
        let mut message = message(at);
        message[0].idempotency_key = at.is_multiple_of(2).then(|| format!("key-{at}"));
        message
    };
    let sends = join_all((0..20).map(|at| backend.send(&name, with_key(at))));
    let (results, ()) = tokio::join!(sends, async {
        let mut answered = 0;
        while answered < 20 {
            let (id, batch) = batch(&mut conn).await;
            let keyed = batch.messages.iter().filter(|it| it.idem_key.is_some()).count();
            assert!(keyed == 0 || keyed == batch.messages.len());
            answered += batch.messages.len();
            conn.reply(id, sent(&batch)).await;
        }
    });
    assert!(results.into_iter().all(|result| one(result).is_ok()));
}

#[tokio::test]
async fn whoever_leaves_disturbs_nobody() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let mut sends: Vec<_> =
        (0..8).map(|at| Some(Box::pin(backend.send(&name, message(at))))).collect();
    let mut first = Vec::new();
    for (at, send) in sends.iter_mut().flatten().enumerate() {
        assert!(poll_immediate(send).await.is_none());
        if at < 2 {
            first.push(batch(&mut conn).await);
        }
    }
    let begun: Vec<_> = first.iter().map(|(_, batch)| texts(batch).concat()).collect();
    assert_eq!(begun, ["message-0", "message-1"]);
    // One whose request is in flight, one who waits for the next.
    (sends[0], sends[4]) = (None, None);
    let rest = join_all(sends.into_iter().flatten());
    let (results, ()) = tokio::join!(rest, async {
        let mut first = first.into_iter();
        let (id, nobodys) = first.next().unwrap();
        conn.reply(id, sent(&nobodys)).await;
        // Those who wait come next, but for the one who has left.
        let (id, together) = batch(&mut conn).await;
        assert_eq!(texts(&together), [2, 3, 5, 6, 7].map(|at| format!("message-{at}")));
        conn.reply(id, sent(&together)).await;
        for (id, batch) in first {
            conn.reply(id, sent(&batch)).await;
        }
    });
    let ids: Vec<String> = results.into_iter().map(|result| one(result).unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 5, 6, 7].map(|at| format!("message-{at}")));
}

#[tokio::test]
async fn settlements_go_out_together_too() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let settlement = |at: usize| {
        // One is of another mailbox.
        let of = if at == 3 { "b" } else { "a" };
        let receipt_handle = ReceiptHandle::from_text(&format!("{of}/{at}"));
        vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }]
    };
    let settles = join_all((0..COUNT).map(|at| backend.settle(&name, settlement(at))));
    let (results, ()) = tokio::join!(settles, async {
        let mut answered = 1;
        while answered < COUNT {
            let (id, asked) = conn.request().await.unwrap();
            let Asked::Call(Request::SettleBatch(SettleBatchRequest { items })) = asked else {
                panic!("{asked:?}");
            };
            answered += items.len();
            let result =
                |item: &mailbox_wire::json::SettleItem| match item.receipt_handle.as_deref() {
                    Some("a/5") => {
                        let error = Box::new(problem("receipt_handle_expired"));
                        SettleResult::Refused { error }
                    }
                    _ => SettleResult::Settled { ok: true },
                };
            let results = items.iter().map(result).collect();
            conn.reply(id, Reply::SettledBatch(SettledBatch { results })).await;
        }
    });
    assert!(conn.frames < COUNT / 10, "{} frames", conn.frames);
    for (at, result) in results.into_iter().enumerate() {
        let result = result.unwrap().remove(0);
        let kind = result.err().map(|error| error.kind());
        let expected = [3, 5].contains(&at).then_some(ErrorKind::ReceiptHandleExpired);
        assert_eq!(kind, expected, "{at}");
    }
}

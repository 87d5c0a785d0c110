//! What gathers, whichever door it goes through.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, poll_immediate};
use mailbox_core::Verdict;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{
    BatchResult, Problem, Purged, SendBatchRequest, SettleBatchRequest, SettleItem, SettleResult,
    SettledBatch,
};

use crate::backend::{Backend, Outgoing, Sent, Settlement};
use crate::backends::remote::RemoteBackend;
use crate::error::{ErrorKind, Result};
use crate::id::ReceiptHandle;
use crate::name::Name;

const COUNT: usize = 1000;
/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// How long its clients wait for an answer: less than it takes to ask whether it is there.
pub(in crate::backends::remote) const TIMEOUT: Duration = Duration::from_secs(5);

/// A service that does as it is told, and its only connection.
pub(in crate::backends::remote) trait Told: Sized {
    /// A request that is to be answered.
    type Call;

    /// With a client of its own, which has no time for other attempts.
    async fn open() -> (Arc<RemoteBackend>, Self);

    async fn next(&mut self) -> (Self::Call, Request);

    async fn reply(&mut self, call: Self::Call, reply: Reply);

    async fn refuse(&mut self, call: Self::Call, problem: &Problem);

    /// Answers a request for a batch with something that is no answer.
    async fn garble(&mut self, call: Self::Call);
}

/// Makes tests of these, for one who does as it is told.
macro_rules! gathering {
    ($told:ty: $($test:ident,)*) => {
        $(#[tokio::test]
        async fn $test() {
            crate::backends::remote::gather::tests::$test::<$told>().await;
        })*
    };
    ($told:ty) => {
        $crate::backends::remote::gather::tests::gathering! {
            $told:
            many_sends_are_few_requests_and_each_gets_its_own_result,
            those_who_gather_go_out_in_the_order_they_came,
            an_answer_that_cannot_be_read_leaves_all_of_them_in_doubt,
            what_is_wrong_with_one_is_nothing_to_the_others,
            what_is_wrong_with_one_costs_the_others_a_few_requests,
            nobody_who_has_left_is_asked_for_again,
            nothing_goes_out_for_one_who_was_told_that_it_did_not,
            once_there_is_too_much_those_who_come_after_are_not_tried,
            those_that_can_be_repeated_go_out_apart_from_others,
            whoever_leaves_disturbs_nobody,
            settlements_go_out_together_too,
        }
    };
}
pub(in crate::backends::remote) use gathering;

fn name() -> Name {
    Name::parse("a").unwrap()
}

fn message(at: usize) -> Vec<Outgoing> {
    vec![Outgoing::new(Bytes::from(format!("message-{at}")))]
}

fn problem(kind: &str) -> Problem {
    let message = format!("this is {kind}");
    Problem { code: "E_TEST".to_owned(), message, kind: kind.to_owned(), ..Problem::default() }
}

/// The next request, which has to be a send.
async fn batch<T: Told>(told: &mut T) -> (T::Call, SendBatchRequest) {
    match told.next().await {
        (call, Request::SendBatch(batch)) => (call, batch),
        (_, other) => panic!("{other:?}"),
    }
}

/// The next request is another one.
async fn purge<T: Told>(backend: &RemoteBackend, told: &mut T) {
    let name = name();
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let (call, asked) = told.next().await;
        assert!(matches!(asked, Request::Purge(_)), "{asked:?}");
        told.reply(call, Reply::Purged(Purged { removed: 7 })).await;
    });
    assert_eq!(purged.unwrap(), 7);
}

fn texts(batch: &SendBatchRequest) -> Vec<String> {
    let payloads = batch.messages.iter().map(|message| message.payload_b64.0.to_vec());
    payloads.map(|payload| String::from_utf8(payload).unwrap()).collect()
}

/// What became of each message of a batch: its payload is its id.
fn sent(batch: &SendBatchRequest) -> Reply {
    let result = |msg_id| BatchResult::Sent(mailbox_wire::json::Sent { msg_id, duplicate: false });
    let results = texts(batch).into_iter().map(result).collect();
    Reply::SentBatch(mailbox_wire::json::SentBatch { results })
}

fn one(result: Result<Vec<Result<Sent>>>) -> Result<String> {
    result.unwrap().remove(0).map(|sent| sent.id.to_string())
}

pub(in crate::backends::remote) async fn many_sends_are_few_requests_and_each_gets_its_own_result<
    T: Told,
>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let sends = join_all((0..COUNT).map(|at| backend.send(&name, message(at))));
    let (results, (all, requests)) = tokio::join!(sends, async {
        let (mut all, mut requests) = (Vec::new(), 0);
        while all.len() < COUNT {
            let (call, batch) = batch(&mut told).await;
            assert_eq!(batch.topic.as_deref(), Some("a"));
            all.extend(texts(&batch));
            let mut reply = sent(&batch);
            if let (Reply::SentBatch(it), Some(at)) =
                (&mut reply, batch.messages.iter().position(|it| it.payload_b64.0.ends_with(b"7")))
            {
                it.results[at] = BatchResult::Refused { error: Box::new(problem("mailbox_full")) };
            }
            told.reply(call, reply).await;
            requests += 1;
        }
        (all, requests)
    });
    assert!(requests < COUNT / 10, "{requests} requests");
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

pub(in crate::backends::remote) async fn those_who_gather_go_out_in_the_order_they_came<T: Told>() {
    /// More than fit into three requests.
    const WAITING: usize = 600;

    let (backend, mut told) = T::open().await;
    let name = name();
    let mut sends: Vec<_> =
        (0..WAITING).map(|at| Box::pin(backend.send(&name, message(at)))).collect();
    let mut in_flight = Vec::new();
    for (at, send) in sends.iter_mut().enumerate() {
        assert!(poll_immediate(send).await.is_none());
        if at < 2 {
            in_flight.push(batch(&mut told).await);
        }
        // Who does too much at a time does not get into line until the next time.
        tokio::task::yield_now().await;
    }
    let (results, (all, requests)) = tokio::join!(join_all(sends), async {
        let (mut all, mut requests) = (Vec::new(), 0);
        while let Some((call, answered)) = in_flight.pop() {
            told.reply(call, sent(&answered)).await;
            if all.len() < WAITING - 2 {
                in_flight.push(batch(&mut told).await);
                all.extend(texts(&in_flight.last().unwrap().1));
                requests += 1;
            }
        }
        (all, requests)
    });
    assert!(results.into_iter().all(|result| one(result).is_ok()));
    let expected: Vec<String> = (2..WAITING).map(|at| format!("message-{at}")).collect();
    assert_eq!(all, expected);
    assert!(requests < 10, "{requests} requests");
}

pub(in crate::backends::remote) async fn an_answer_that_cannot_be_read_leaves_all_of_them_in_doubt<
    T: Told,
>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let sends = join_all((0..3).map(|at| backend.send(&name, message(at))));
    let (results, ()) = tokio::join!(sends, async {
        let (call, _) = batch(&mut told).await;
        told.garble(call).await;
    });
    for result in results {
        let error = one(result).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert!(error.is_in_doubt(), "{error}");
    }
}

pub(in crate::backends::remote) async fn what_is_wrong_with_one_is_nothing_to_the_others<
    T: Told,
>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let sends = join_all((0..8).map(|at| backend.send(&name, message(at))));
    let (results, ()) = tokio::join!(sends, async {
        let mut answered = 0;
        while answered < 8 {
            let (call, batch) = batch(&mut told).await;
            if texts(&batch).contains(&"message-5".to_owned()) {
                told.refuse(call, &problem("forbidden")).await;
                answered += usize::from(batch.messages.len() == 1);
            } else {
                answered += batch.messages.len();
                told.reply(call, sent(&batch)).await;
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

/// Each of the others was asked for by itself, one after the other: 255 round trips, in which
/// nobody else sent anything to that mailbox.
pub(in crate::backends::remote) async fn what_is_wrong_with_one_costs_the_others_a_few_requests<
    T: Told,
>() {
    /// As many as come before anything goes out.
    const ALL: usize = 100;

    let (backend, mut told) = T::open().await;
    let name = name();
    let sends = join_all((0..ALL).map(|at| backend.send(&name, message(at))));
    let (results, requests) = tokio::join!(sends, async {
        let (call, together) = batch(&mut told).await;
        assert_eq!(together.messages.len(), ALL);
        told.refuse(call, &problem("forbidden")).await;
        // They are in flight at the same time.
        let mut in_flight = Vec::new();
        for _ in 0..4 {
            let next = tokio::time::timeout(SOON, batch(&mut told)).await;
            in_flight.push(next.expect("none waits for another"));
        }
        let (mut answered, mut requests) = (0, 5);
        loop {
            for (call, batch) in std::mem::take(&mut in_flight) {
                if texts(&batch).contains(&"message-77".to_owned()) {
                    told.refuse(call, &problem("forbidden")).await;
                    answered += usize::from(batch.messages.len() == 1);
                } else {
                    told.reply(call, sent(&batch)).await;
                    answered += batch.messages.len();
                }
            }
            if answered == ALL {
                return requests;
            }
            in_flight.push(batch(&mut told).await);
            requests += 1;
        }
    });
    assert!(requests < 30, "{requests} requests");
    for (at, result) in results.into_iter().enumerate() {
        match one(result) {
            Ok(id) => assert_eq!(id, format!("message-{at}")),
            Err(error) => assert_eq!((error.kind(), at), (ErrorKind::Forbidden, 77)),
        }
    }
}

pub(in crate::backends::remote) async fn nobody_who_has_left_is_asked_for_again<T: Told>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let mut sends: Vec<_> =
        (0..6).map(|at| Some(Box::pin(backend.send(&name, message(at))))).collect();
    for send in sends.iter_mut().flatten() {
        assert!(poll_immediate(send).await.is_none());
    }
    let (call, together) = batch(&mut told).await;
    assert_eq!(together.messages.len(), 6);
    for gone in [0, 3, 4] {
        sends[gone] = None;
    }
    let rest = join_all(sends.into_iter().flatten());
    let (results, asked) = tokio::join!(rest, async {
        told.refuse(call, &problem("forbidden")).await;
        let mut asked = Vec::new();
        for _ in 0..3 {
            let (call, batch) = batch(&mut told).await;
            asked.extend(texts(&batch));
            told.reply(call, sent(&batch)).await;
        }
        asked
    });
    assert_eq!(asked, [1, 2, 5].map(|at| format!("message-{at}")));
    assert!(results.into_iter().all(|result| one(result).is_ok()));
    purge(&backend, &mut told).await;
}

/// They were told that their send was in doubt, and then it was sent.
pub(in crate::backends::remote) async fn nothing_goes_out_for_one_who_was_told_that_it_did_not<
    T: Told,
>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let sends = join_all((0..4).map(|at| backend.send(&name, message(at))));
    tokio::time::pause();
    // One after the other, each as late as it may be.
    let late = TIMEOUT * 4 / 5;
    let (results, last) = tokio::join!(sends, async {
        let (call, together) = batch(&mut told).await;
        assert_eq!(together.messages.len(), 4);
        tokio::time::sleep(late).await;
        told.refuse(call, &problem("saturated")).await;
        let (call, first) = batch(&mut told).await;
        assert_eq!(texts(&first), ["message-0"]);
        tokio::time::sleep(late).await;
        told.reply(call, sent(&first)).await;
        let (call, second) = batch(&mut told).await;
        (call, second)
    });
    let mut results = results.into_iter().map(one);
    assert_eq!(results.next().unwrap().unwrap(), "message-0");
    let doubts: Vec<bool> = results.map(|result| result.unwrap_err().is_in_doubt()).collect();
    assert_eq!(doubts, [true, false, false]);
    tokio::time::resume();
    let (call, second) = last;
    assert_eq!(texts(&second), ["message-1"]);
    told.reply(call, sent(&second)).await;
    purge(&backend, &mut told).await;
}

pub(in crate::backends::remote) async fn once_there_is_too_much_those_who_come_after_are_not_tried<
    T: Told,
>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let sends = join_all((0..12).map(|at| backend.send(&name, message(at))));
    let (results, ()) = tokio::join!(sends, async {
        for expected in [12, 1, 1] {
            let (call, batch) = batch(&mut told).await;
            assert_eq!(batch.messages.len(), expected);
            // Only the first is not too much.
            if texts(&batch) == ["message-0"] {
                told.reply(call, sent(&batch)).await;
            } else {
                told.refuse(call, &problem("saturated")).await;
            }
        }
    });
    let good: Vec<bool> = results.into_iter().map(|result| one(result).is_ok()).collect();
    assert_eq!(good.iter().position(|is_good| *is_good), Some(0));
    assert_eq!(good.iter().filter(|is_good| **is_good).count(), 1);
}

pub(in crate::backends::remote) async fn those_that_can_be_repeated_go_out_apart_from_others<
    T: Told,
>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let with_key = |at: usize| {
        let mut message = message(at);
        message[0].idempotency_key = at.is_multiple_of(2).then(|| format!("key-{at}"));
        message
    };
    let sends = join_all((0..20).map(|at| backend.send(&name, with_key(at))));
    let (results, ()) = tokio::join!(sends, async {
        let mut answered = 0;
        while answered < 20 {
            let (call, batch) = batch(&mut told).await;
            let keyed = batch.messages.iter().filter(|it| it.idem_key.is_some()).count();
            assert!(keyed == 0 || keyed == batch.messages.len());
            answered += batch.messages.len();
            told.reply(call, sent(&batch)).await;
        }
    });
    assert!(results.into_iter().all(|result| one(result).is_ok()));
}

pub(in crate::backends::remote) async fn whoever_leaves_disturbs_nobody<T: Told>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let mut sends: Vec<_> =
        (0..8).map(|at| Some(Box::pin(backend.send(&name, message(at))))).collect();
    let mut first = Vec::new();
    for (at, send) in sends.iter_mut().flatten().enumerate() {
        assert!(poll_immediate(send).await.is_none());
        if at < 2 {
            first.push(batch(&mut told).await);
        }
    }
    let begun: Vec<_> = first.iter().map(|(_, batch)| texts(batch).concat()).collect();
    assert_eq!(begun, ["message-0", "message-1"]);
    // One whose request is in flight, one who waits for the next.
    (sends[0], sends[4]) = (None, None);
    let rest = join_all(sends.into_iter().flatten());
    let (results, ()) = tokio::join!(rest, async {
        let mut first = first.into_iter();
        let (call, nobodys) = first.next().unwrap();
        told.reply(call, sent(&nobodys)).await;
        // Those who wait come next, but for the one who has left.
        let (call, together) = batch(&mut told).await;
        assert_eq!(texts(&together), [2, 3, 5, 6, 7].map(|at| format!("message-{at}")));
        told.reply(call, sent(&together)).await;
        for (call, batch) in first {
            told.reply(call, sent(&batch)).await;
        }
    });
    let ids: Vec<String> = results.into_iter().map(|result| one(result).unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 5, 6, 7].map(|at| format!("message-{at}")));
}

pub(in crate::backends::remote) async fn settlements_go_out_together_too<T: Told>() {
    let (backend, mut told) = T::open().await;
    let name = name();
    let settlement = |at: usize| {
        // One is of another mailbox.
        let of = if at == 3 { "b" } else { "a" };
        let receipt_handle = ReceiptHandle::from_text(&format!("{of}/{at}"));
        vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }]
    };
    let settles = join_all((0..COUNT).map(|at| backend.settle(&name, settlement(at))));
    let (results, requests) = tokio::join!(settles, async {
        let (mut answered, mut requests) = (1, 0);
        while answered < COUNT {
            let (call, asked) = told.next().await;
            let Request::SettleBatch(SettleBatchRequest { items }) = asked else {
                panic!("{asked:?}");
            };
            requests += 1;
            answered += items.len();
            let result = |item: &SettleItem| match item.receipt_handle.as_deref() {
                Some("a/5") => {
                    let error = Box::new(problem("receipt_handle_expired"));
                    SettleResult::Refused { error }
                }
                _ => SettleResult::Settled { ok: true },
            };
            let results = items.iter().map(result).collect();
            told.reply(call, Reply::SettledBatch(SettledBatch { results })).await;
        }
        requests
    });
    assert!(requests < COUNT / 10, "{requests} requests");
    for (at, result) in results.into_iter().enumerate() {
        let result = result.unwrap().remove(0);
        let kind = result.err().map(|error| error.kind());
        let expected = [3, 5].contains(&at).then_some(ErrorKind::ReceiptHandleExpired);
        assert_eq!(kind, expected, "{at}");
    }
}

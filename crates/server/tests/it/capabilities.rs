//! Capabilities that are taken back, replaced or run out, while messages are on their way.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mailbox_server::auth::OPERATOR_FILE;
use mailbox_wire::capability::Capability;
use mailbox_wire::json::{
    MintRequest, Minted, ReceiveRequest, Received, RevokeRequest, Revoked, RotateRequest, Rotated,
};

use crate::rig::{Client, PATIENCE, Rig, Served, caveats, receive, send, soon, until};

/// How long another process may go on believing in what was revoked elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(2);

async fn revoke(client: &mut Client, capability: &str) -> String {
    let question =
        RevokeRequest { capability: Some(capability.to_owned()), ..RevokeRequest::default() };
    client.post("/v1/caps/revoke", &question).await.good::<Revoked>().token_id
}

async fn rotate(client: &mut Client, grace_s: u64) -> Rotated {
    client.post("/v1/caps/rotate", &RotateRequest { grace_s: Some(grace_s) }).await.good()
}

async fn minted(client: &mut Client, ops: &[&str]) -> Minted {
    let ops = ops.iter().map(|&op| op.to_owned()).collect();
    client.post("/v1/caps/mint", &MintRequest { ops, ..MintRequest::default() }).await.good()
}

#[tokio::test]
async fn what_was_revoked_is_refused_at_once_a_hundred_times_of_a_hundred() {
    let dir = tempfile::tempdir().unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    let mut operator = served.client().await;
    let mut revoked = Vec::new();
    for _ in 0..100 {
        let capability = minted(&mut operator, &["send"]).await.capability;
        let mut holder = served.client_with(&capability).await;
        holder.send("jobs", "one").await;
        let parent = Capability::decode(&capability).unwrap();
        let child = parent.attenuate(&"topic = jobs".parse().unwrap()).unwrap().encode();
        let mut heir = served.client_with(&child).await;
        heir.send("jobs", "one").await;
        let id = revoke(&mut operator, &capability).await;
        // It is on disk when that is said.
        let kept = std::fs::read_to_string(dir.path().join("revoked")).unwrap();
        assert!(kept.lines().any(|line| line.split(' ').next() == Some(&id)), "{id}");
        holder.try_send(&send("jobs", "two")).await.refused(401, "revoked");
        heir.try_send(&send("jobs", "two")).await.refused(401, "revoked");
        revoked.push(capability);
    }
    drop(served);
    // And it stays so.
    let again = Rig::new().keeping(dir.path()).start().await;
    for capability in revoked {
        let mut holder = again.client_with(&capability).await;
        holder.try_send(&send("jobs", "two")).await.refused(401, "revoked");
    }
}

#[tokio::test]
async fn another_process_on_the_same_directory_learns_of_it_soon() {
    let dir = tempfile::tempdir().unwrap();
    let one = Rig::new().keeping(dir.path()).start().await;
    let other = Rig::new().keeping(dir.path()).start().await;
    let mut operator = one.client().await;
    let first = minted(&mut operator, &["send"]).await.capability;
    let second = minted(&mut operator, &["send"]).await.capability;
    for (capability, is_rotated) in [(first, false), (second, true)] {
        let mut holder = other.client_with(&capability).await;
        holder.send("jobs", "one").await;
        let since = if is_rotated {
            rotate(&mut operator, 0).await;
            Instant::now()
        } else {
            revoke(&mut operator, &capability).await;
            Instant::now()
        };
        until("it is refused elsewhere", async || {
            holder.try_send(&send("jobs", "two")).await.status == 401
        })
        .await;
        assert!(since.elapsed() < ELSEWHERE, "{:?}", since.elapsed());
    }
}

#[tokio::test]
async fn a_revocation_is_remembered_although_the_one_before_was_torn() {
    let dir = tempfile::tempdir().unwrap();
    let capability = {
        let served = Rig::new().keeping(dir.path()).start().await;
        let capability = served.mint(&["op = send"]);
        let mut operator = served.client().await;
        revoke(&mut operator, &served.mint(&["op = send"])).await;
        // The power went while a line was written.
        let path = dir.path().join("revoked");
        let kept = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &kept[..10]).unwrap();
        capability
    };
    {
        let served = Rig::new().keeping(dir.path()).start().await;
        revoke(&mut served.client().await, &capability).await;
        let mut holder = served.client_with(&capability).await;
        holder.try_send(&send("jobs", "one")).await.refused(401, "revoked");
    }
    let served = Rig::new().keeping(dir.path()).start().await;
    let mut holder = served.client_with(&capability).await;
    holder.try_send(&send("jobs", "one")).await.refused(401, "revoked");
}

fn operator_file(dir: &Path) -> String {
    std::fs::read_to_string(dir.join(OPERATOR_FILE)).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_key_that_is_replaced_without_grace_is_worth_nothing_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    let before = operator_file(dir.path());
    let capability = served.mint(&["op = send"]);
    let mut holder = served.client_with(&capability).await;
    holder.send("jobs", "one").await;
    let mut operator = served.client().await;
    assert_eq!(rotate(&mut operator, 0).await.previous_until, None);
    holder.try_send(&send("jobs", "two")).await.refused(401, "bad_signature");
    for old in [&before, &served.operator] {
        let reply = served.client_with(old).await.get("/v1/topics").await;
        reply.refused(401, "bad_signature");
    }
    // The operator finds a new one, which is good also after a restart.
    let now = operator_file(dir.path());
    assert_ne!(now, before);
    assert_eq!(served.client_with(&now).await.get("/v1/topics").await.status, 200);
    drop(served);
    let again = Rig::new().keeping(dir.path()).start().await;
    assert_eq!(again.client_with(&now).await.get("/v1/topics").await.status, 200);
    again
        .client_with(&capability)
        .await
        .try_send(&send("jobs", "x"))
        .await
        .refused(401, "bad_signature");
}

#[tokio::test]
async fn a_key_that_is_replaced_with_grace_is_good_until_that_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    let capability = served.mint(&["op = send"]);
    let mut holder = served.client_with(&capability).await;
    let mut operator = served.client().await;
    let since = Instant::now();
    assert!(rotate(&mut operator, 1).await.previous_until.is_some());
    let mut fresh = served.client_with(&served.mint(&["op = send"])).await;
    while since.elapsed() < Duration::from_millis(800) {
        assert_eq!(holder.try_send(&send("jobs", "old")).await.status, 200);
        fresh.send("jobs", "new").await;
    }
    let refused_after = loop {
        let reply = holder.try_send(&send("jobs", "old")).await;
        if reply.status != 200 {
            reply.refused(401, "bad_signature");
            break since.elapsed();
        }
        assert!(since.elapsed() < Duration::from_secs(3), "good after the grace is over");
    };
    assert!(refused_after >= Duration::from_millis(990), "{refused_after:?}");
    assert!(refused_after < Duration::from_millis(1500), "{refused_after:?}");
    fresh.send("jobs", "new").await;
}

#[tokio::test]
async fn an_operator_without_a_directory_is_told_its_new_capability_and_nobody_else_is() {
    let served = Rig::new().start().await;
    // All operations but one; and all, but not for ever.
    for caveats in [&["op = send,recv,ack,nack,admin", "ip = 127.0.0.0/8"][..], &["op = admin"]] {
        let narrow = served.mint(caveats);
        let rotated = rotate(&mut served.client_with(&narrow).await, 3600).await;
        assert_eq!(rotated.operator_capability, None, "{caveats:?}");
    }
    let operator = served.auth.operator().unwrap().encode();
    let rotated = rotate(&mut served.client_with(&operator).await, 0).await;
    served.client_with(&operator).await.get("/v1/topics").await.refused(401, "bad_signature");
    let new = rotated.operator_capability.expect("the operator is told");
    assert_eq!(served.client_with(&new).await.get("/v1/topics").await.status, 200);
    // Where a file has it, nobody is.
    let dir = tempfile::tempdir().unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    assert_eq!(rotate(&mut served.client().await, 0).await.operator_capability, None);
}

#[tokio::test]
async fn a_second_key_leaves_the_first_ones_grace_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    let oldest = served.mint(&["op = send"]);
    rotate(&mut served.client().await, 3600).await;
    let old = served.mint(&["op = send"]);
    rotate(&mut operator_of(&served, dir.path()).await, 3600).await;
    let restarted = Rig::new().keeping(dir.path()).start().await;
    for served in [&served, &restarted] {
        for capability in [&oldest, &old] {
            served.client_with(capability).await.send("jobs", "one").await;
        }
    }
    // An older key is never good for longer than a newer one.
    rotate(&mut operator_of(&served, dir.path()).await, 0).await;
    for capability in [&oldest, &old] {
        let reply = served.client_with(capability).await.try_send(&send("jobs", "x")).await;
        reply.refused(401, "bad_signature");
    }
}

#[tokio::test]
async fn an_operator_whose_key_is_gone_gets_a_new_capability_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let before = {
        let served = Rig::new().keeping(dir.path()).start().await;
        let before = operator_file(dir.path());
        rotate(&mut served.client().await, 0).await;
        before
    };
    // As if the power had gone between the key and the capability.
    std::fs::write(dir.path().join(OPERATOR_FILE), &before).unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    let now = operator_file(dir.path());
    assert_ne!(now, before);
    assert_eq!(served.client_with(&now).await.get("/v1/topics").await.status, 200);
    drop(served);
    // And keeps it as long as it is good.
    let _served = Rig::new().keeping(dir.path()).start().await;
    assert_eq!(operator_file(dir.path()), now);
}

#[tokio::test]
async fn what_was_received_before_the_end_of_a_capability_can_be_settled_after_it() {
    let served = Rig::new().start().await;
    let mut operator = served.client().await;
    for number in 0..5 {
        operator.send("jobs", number.to_string()).await;
    }
    let mut all = caveats(&["op = send,recv,ack,nack"]);
    all.push(soon(Duration::from_millis(700)));
    let capability = served.auth.mint(&all).unwrap();
    let mut holder = served.client_with(&capability.encode()).await;
    let got = holder.receive("jobs", 4, 30_000).await;
    assert_eq!(got.len(), 4);
    let others = operator.receive_one("jobs", 30_000).await;
    until("it has expired", async || {
        holder.try_receive(&receive("empty", 1, 30_000)).await.status == 401
    })
    .await;
    // Nothing new.
    holder.try_send(&send("jobs", "late")).await.refused(401, "expired");
    holder.try_receive(&receive("jobs", 1, 30_000)).await.refused(401, "expired");
    holder.post("/v1/recv/stream", &receive("jobs", 1, 30_000)).await.refused(401, "expired");
    holder.extend(&got[0], 30_000).await.refused(401, "expired");
    // Nothing that it did not receive, not even one made from the same capability for another.
    holder.ack_it(&others).await.refused(401, "expired");
    holder.nack(&others, false).await.refused(401, "expired");
    let other = served.auth.mint(&all).unwrap().encode();
    served.client_with(&other).await.ack_it(&got[0]).await.refused(401, "expired");
    // But what it has.
    assert_eq!(holder.ack_it(&got[0]).await.status, 200);
    assert_eq!(holder.ack(&got[1].msg_id, None).await.status, 200);
    assert_eq!(holder.nack(&got[2], false).await.status, 200);
    // Unless it is taken back.
    revoke(&mut operator, &capability.encode()).await;
    holder.ack_it(&got[3]).await.refused(401, "revoked");
    let stats = operator.stats("jobs").await;
    assert_eq!((stats.totals.acknowledged, stats.ready, stats.invisible), (2, 1, 2));
}

#[tokio::test]
async fn a_receive_that_outlives_its_capability_strands_no_message() {
    let served = Rig::new().start().await;
    let mut all = caveats(&["op = recv,ack"]);
    all.push(soon(Duration::from_millis(600)));
    let capability = served.auth.mint(&all).unwrap().encode();
    let mut holder = served.client_with(&capability).await;
    let mut operator = served.client().await;
    let question = ReceiveRequest { wait_ms: Some(20_000), ..receive("jobs", 1, 30_000) };
    let waiting = tokio::spawn(async move {
        let reply = holder.try_receive(&question).await;
        (holder, reply)
    });
    until("it waits", async || operator.stats("jobs").await.waiters == 1).await;
    let mut probe = served.client_with(&capability).await;
    until("it has expired", async || {
        probe.try_receive(&receive("other", 1, 30_000)).await.status == 401
    })
    .await;
    operator.send("jobs", "one").await;
    let (mut holder, reply) = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    // Either it gets nothing, or it can settle what it got.
    if reply.status == 200 {
        for message in reply.good::<Received>().messages {
            let settled = holder.ack_it(&message).await;
            assert_eq!(settled.status, 200, "{}", settled.text());
        }
    } else {
        reply.refused(401, "expired");
    }
    let stats = operator.stats("jobs").await;
    assert_eq!(stats.invisible, 0, "stranded");
}

#[tokio::test]
async fn a_receive_whose_capability_is_revoked_while_it_waits_gets_nothing() {
    let served = Rig::new().start().await;
    let capability = served.mint(&["op = recv,ack"]);
    let mut holder = served.client_with(&capability).await;
    let mut operator = served.client().await;
    let question = ReceiveRequest { wait_ms: Some(20_000), ..receive("jobs", 1, 30_000) };
    let waiting = tokio::spawn(async move { holder.try_receive(&question).await });
    until("it waits", async || operator.stats("jobs").await.waiters == 1).await;
    revoke(&mut operator, &capability).await;
    operator.send("jobs", "one").await;
    let reply = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    reply.refused(401, "revoked");
    until("it is back", async || operator.stats("jobs").await.ready == 1).await;
    assert_eq!(operator.receive_one("jobs", 30_000).await.attempt, 1);
}

/// Sends, receives and acknowledges until told to stop, with whatever capability is good.
async fn traffic(
    served: Arc<(std::net::SocketAddr, parking_lot::Mutex<String>)>,
    stop: Arc<AtomicBool>,
) -> (u64, u64) {
    let (address, current) = &*served;
    let (mut sent, mut refused) = (0, 0);
    let mut client = None;
    while !stop.load(Ordering::Relaxed) {
        let capability = current.lock().clone();
        let connection = crate::rig::Connection::open(*address).await;
        let with = client.get_or_insert_with(|| Client::new(connection, &capability));
        let reply = with.try_send(&send("jobs", "x")).await;
        if reply.status == 401 {
            refused += 1;
            client = None;
            continue;
        }
        assert_eq!(reply.status, 200, "{}", reply.text());
        sent += 1;
        let reply = with.try_receive(&receive("jobs", 4, 300)).await;
        if reply.status != 200 {
            continue;
        }
        for message in reply.good::<Received>().messages {
            let _ = with.ack_it(&message).await;
        }
    }
    (sent, refused)
}

async fn operator_of(served: &Served, dir: &Path) -> Client {
    served.client_with(&operator_file(dir)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_replaced_under_live_traffic_strand_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    let current =
        Arc::new((served.address, parking_lot::Mutex::new(served.mint(&["op = send,recv,ack"]))));
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        workers.spawn(traffic(Arc::clone(&current), Arc::clone(&stop)));
    }
    for _ in 0..10 {
        let before = operator_of(&served, dir.path()).await.stats("jobs").await.totals.sent;
        rotate(&mut operator_of(&served, dir.path()).await, 0).await;
        *current.1.lock() = served.mint(&["op = send,recv,ack"]);
        let mut operator = operator_of(&served, dir.path()).await;
        until("it goes on with new ones", async || {
            operator.stats("jobs").await.totals.sent > before + 10
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    let done = tokio::time::timeout(PATIENCE, workers.join_all()).await.unwrap();
    let sent: u64 = done.iter().map(|(sent, _)| sent).sum();
    assert!(done.iter().map(|(_, refused)| refused).sum::<u64>() > 0, "nothing was refused");
    let mut operator = operator_of(&served, dir.path()).await;
    // What nobody could acknowledge any more comes back when its time is up.
    until("all are done", async || {
        for message in operator.receive("jobs", 256, 30_000).await {
            assert_eq!(operator.ack_it(&message).await.status, 200);
        }
        let stats = operator.stats("jobs").await;
        stats.ready + stats.invisible == 0
    })
    .await;
    let totals = operator.stats("jobs").await.totals;
    assert_eq!((totals.sent, totals.acknowledged), (sent, sent));
}

//! A client that is used from more than one runtime.

use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{BatchResult, Purged, Received, Sent, SentBatch};
use tokio::runtime::Builder;

use super::peer::{Conn, Peer, abilities};
use crate::backends::remote::idle;

/// Answers everything, at once.
async fn serve(mut conn: Conn) {
    while let Some(mut call) = conn.next_call().await {
        let reply = match call.method.as_str() {
            "GetAbilities" => Reply::Abilities(abilities()),
            "PurgeTopic" => Reply::Purged(Purged { removed: 7 }),
            "SendBatch" => {
                let Request::SendBatch(batch) = call.asked(2).await else { panic!("a send") };
                let sent = BatchResult::Sent(Sent { msg_id: "1".to_owned(), duplicate: false });
                Reply::SentBatch(SentBatch { results: vec![sent; batch.messages.len()] })
            }
            "RecvWhileOpen" => Reply::Received(Received { messages: Vec::new() }),
            other => panic!("{other}"),
        };
        call.reply(reply);
    }
}

#[test]
fn a_runtime_that_is_idle_holds_up_nobody() {
    let service = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let peer = service.block_on(Peer::new());
    let url = peer.url();
    service.spawn(async move {
        loop {
            tokio::spawn(serve(peer.accept().await));
        }
    });
    idle::holds_up_nobody(&url);
}

//! Settlements that come together.

use mailbox_wire::call::Request;
use mailbox_wire::json::{SettleItem, SettleOp};

use super::{
    Told, ack, codes, comparable, frames, good, messages, one_by_one, settle, together, two,
};
use crate::rig::{OapClient, Served, send};

/// Settlements of every kind, of ten messages that were received and one that was received again.
async fn settlements(served: &Served, client: &mut OapClient) -> Vec<Request> {
    let mut sender = served.oap_client().await;
    for number in 0..10 {
        sender.ask(good(number)).await.unwrap();
    }
    sender.ask(Request::Send(send("other", "another"))).await.unwrap();
    let held = messages(client, "jobs").await;
    let handle = |place: usize| held[place].receipt_handle.clone().unwrap();
    let nack = SettleItem { delay_ms: Some(0), ..settle(SettleOp::Nack, Some(handle(9))) };
    client.ask(Request::Settle(nack.clone())).await.unwrap();
    let again = messages(client, "jobs").await[0].receipt_handle.clone().unwrap();
    let another = messages(client, "other").await[0].receipt_handle.clone().unwrap();
    let named = |place: usize, id: usize| {
        let msg_id = Some(held[id].msg_id.clone());
        Request::Settle(SettleItem { msg_id, ..settle(SettleOp::Ack, Some(handle(place))) })
    };
    let extend =
        SettleItem { visibility_ms: Some(60_000), ..settle(SettleOp::Extend, Some(handle(6))) };
    let odd = SettleItem { delay_ms: Some(5), ..settle(SettleOp::Ack, Some(handle(7))) };
    vec![
        ack(handle(0)),
        ack(handle(0)),
        ack(handle(9)),
        ack(again),
        ack("jobs/nothing of the kind"),
        ack(handle(1)),
        ack("no handle at all"),
        ack(handle(2)),
        ack(another.clone()),
        ack(handle(2)),
        Request::Settle(nack),
        named(3, 3),
        named(4, 5),
        ack(handle(4)),
        Request::Settle(extend.clone()),
        ack(handle(6)),
        Request::Settle(extend),
        Request::Settle(odd),
        ack(another),
        Request::Settle(settle(SettleOp::Ack, None)),
        ack(handle(7)),
        ack("/"),
        ack("forbidden/1"),
        ack(handle(8)),
    ]
}

async fn compare_settlements(caveats: &[&str]) -> Vec<Told> {
    let [(first, mut quick), (second, mut slow)] = two(caveats).await;
    let requests = settlements(&first, &mut quick).await;
    let found = comparable(together(&mut quick, &frames(&requests)).await);
    let requests = settlements(&second, &mut slow).await;
    let expected = comparable(one_by_one(&mut slow, &frames(&requests)).await);
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{caveats:?}: {place}: {:?}", requests[place]);
    }
    found
}

#[tokio::test]
async fn settlements_that_come_together_are_answered_each_by_itself() {
    let scope = ["op = recv,ack,nack", "topic = jobs,other"];
    let codes = codes(&compare_settlements(&scope).await);
    let expected = [
        200, 404, 404, 200, 404, 200, 404, 200, 200, 404, 404, 200, 404, 200, 200, 200, 404, 400,
        404, 400, 200, 404, 403, 200,
    ];
    assert_eq!(codes, expected);
}

/// Settlements that fail are held to the rate: nobody may try out handles for ever.
#[tokio::test]
async fn settlements_that_fail_are_held_to_the_rate_also_if_they_come_together() {
    compare_settlements(&["op = recv,ack,nack", "topic = jobs,other", "rate = 20/h"]).await;
    let [(_first, mut quick), (_second, mut slow)] = two(&["op = ack", "rate = 2/h"]).await;
    let guesses: Vec<Request> = (0..30).map(|guess| ack(format!("jobs/{guess}"))).collect();
    let found = codes(&together(&mut quick, &frames(&guesses)).await);
    let expected = codes(&one_by_one(&mut slow, &frames(&guesses)).await);
    assert_eq!(found, expected);
}

//! What is sent, or settled, one by one at the same time goes out together.

use std::sync::Arc;

use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::Problem;
use mailbox_wire::proto::details;
use tonic::{Code, Status};

use super::peer::{Call, Conn, Peer, config, framed, trailers};
use crate::backends::remote::RemoteBackend;
use crate::backends::remote::gather::tests::{TIMEOUT, Told, gathering};

gathering!(OverGrpc);

/// Nobody else connects to it.
struct OverGrpc(Conn, #[expect(dead_code, reason = "kept open")] Peer);

impl Told for OverGrpc {
    type Call = Call;

    async fn open() -> (Arc<RemoteBackend>, Self) {
        let peer = Peer::new().await;
        let (backend, conn) = peer.open(config().with_timeout(TIMEOUT)).await;
        (backend, Self(conn, peer))
    }

    async fn next(&mut self) -> (Call, Request) {
        let mut call = self.0.call().await;
        let field = match call.method.as_str() {
            "SendBatch" => 2,
            "SettleBatch" => 8,
            "PurgeTopic" => 20,
            other => panic!("{other}"),
        };
        let request = call.asked(field).await;
        (call, request)
    }

    async fn reply(&mut self, call: Call, reply: Reply) {
        call.reply(reply);
    }

    async fn refuse(&mut self, call: Call, problem: &Problem) {
        let code = Code::PermissionDenied;
        call.refuse(&Status::with_details(code, "told", details(code.into(), problem.clone())));
    }

    async fn garble(&mut self, mut call: Call) {
        let mut stream = call.begin();
        stream.send_data(framed(&[0xff; 9]), false).unwrap();
        stream.send_trailers(trailers(&Status::new(Code::Ok, ""))).unwrap();
    }
}

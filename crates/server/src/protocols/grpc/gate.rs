//! Who may come in, before anything of a message is read; and what goes out.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::request::Parts;
use http_body_util::Limited;
use mailbox::{Error, ErrorKind};
use mailbox_wire::proto::v1::mailbox_server::MailboxServer;
use parking_lot::Mutex;
use tonic::{Code, Status};
use tower_service::Service as _;

use super::framing::{PREFIX, check_encoding, check_message, too_large};
use super::methods::Methods;
use super::refusal::{Counted, by_the_library, no_method, refused};
use crate::admission::{Purpose, Room, full};
use crate::auth::Caller;
use crate::calls::Facts;
use crate::failure::{Answer, Failure};
use crate::listen::Peer;
use crate::metrics::is_known;
use crate::protocols::http::exchange::{caller, conflict_wanted, corr_id_of, facts_of};
use crate::protocols::http::{InBody, read_body};
use crate::service::Service;

/// All that a client may say who keeps its side open: what to receive.
const SMALL: usize = 4 * 1024;

/// Lets calls in.
#[derive(Clone)]
pub(super) struct Gate {
    service: Arc<Service>,
    methods: MailboxServer<Methods>,
    /// Largest message.
    largest: usize,
}

/// One who was let in.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub(super) caller: Caller,
    pub(super) epoch: u64,
    pub(super) facts: Facts,
    /// What the message takes.
    pub(super) room: Arc<Mutex<Room>>,
    /// Deliveries that go out.
    pub(super) in_body: InBody,
    /// Why it failed, if it did.
    pub(super) failed: Arc<Mutex<Option<ErrorKind>>>,
}

impl Gate {
    pub(super) fn new(
        service: &Arc<Service>,
        methods: MailboxServer<Methods>,
        largest: usize,
    ) -> Self {
        Self { service: Arc::clone(service), methods, largest }
    }

    /// Makes a call.
    pub(super) async fn answer(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let corr_id = corr_id_of(&head);
        let (ticket, request) = match self.admit(head, body, &corr_id).await {
            Ok(admitted) => admitted,
            Err(failure) => return refused(&failure, &corr_id),
        };
        let mut methods = self.methods.clone();
        let Ok(response) = methods.call(request).await;
        let (mut head, body) = response.into_parts();
        if let Some(kind) = *ticket.failed.lock() {
            head.extensions.insert(Counted { kind });
        } else if let Some(status) = Status::from_header_map(&head.headers)
            && status.code() != Code::Ok
        {
            return refused(&by_the_library(&status), &corr_id);
        }
        head.extensions.insert(ticket.in_body);
        Response::from_parts(head, Body::new(body))
    }

    /// Refuses what can be refused, the cheapest first.
    async fn admit(
        &self,
        mut head: Parts,
        body: Body,
        corr_id: &Arc<str>,
    ) -> Answer<(Ticket, Request)> {
        let service = &self.service;
        let peer = head.extensions.get::<Arc<Peer>>().map(Arc::clone);
        let peer = peer.ok_or_else(|| Failure::new(ErrorKind::Internal, "a call from nowhere"))?;
        // Before it is verified: whatever is taken back from here on makes it another one.
        let epoch = service.auth.epoch();
        let caller = caller(service, &head, &peer, corr_id)?;
        if !is_known(head.uri.path()) {
            return Err(no_method());
        }
        let method = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        caller.may_come(purpose_of(&method))?;
        check_encoding(&head.headers)?;
        let mut facts = facts_of(&head);
        facts.is_conflict = method == "Send" && conflict_wanted(&head)?;
        let token_id = &caller.verified.token_id;
        let (body, room) = if method == "RecvWhileOpen" {
            let mut room = Room::default();
            if !room.grow(&service.admission.incoming, token_id, SMALL as u64) {
                return Err(full("too many messages are coming in").into());
            }
            (Body::new(Limited::new(body, SMALL)), room)
        } else {
            // The transport's bound, and that of all requests.
            let most = self.largest.min(service.settings().limits.body);
            let (bytes, room) = read_body(service, &head, body, most + PREFIX, token_id)
                .await
                .map_err(|error| too_long(error, most))?;
            check_message(&bytes, most)?;
            (Body::from(bytes), room)
        };
        let ticket = Ticket {
            caller,
            epoch,
            facts,
            room: Arc::new(Mutex::new(room)),
            in_body: InBody::default(),
            failed: Arc::default(),
        };
        head.extensions.insert(ticket.clone());
        Ok((ticket, Request::from_parts(head, body)))
    }
}

fn too_long(error: Error, most: usize) -> Error {
    match error.kind() {
        ErrorKind::TooLarge => too_large(most),
        _ => error,
    }
}

/// What a call is about.
fn purpose_of(method: &str) -> Purpose {
    match method {
        "Send" | "SendBatch" => Purpose::Sending,
        // What the store can do is asked by every client first, also by one that comes to settle.
        "Ack" | "Nack" | "Extend" | "SettleBatch" | "GetAbilities" => Purpose::Settling,
        "Peek" | "LookUp" | "GetMessage" | "ListDead" => Purpose::Looking,
        _ => Purpose::Other,
    }
}

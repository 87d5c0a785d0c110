//! The calls of the service, one method each. A method translates; what it asks for is done by
//! [`Service::answer`].

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::Stream as Messages;
use mailbox::{Error, ErrorKind};
use mailbox_wire::call::{self, Reply};
use mailbox_wire::proto::v1::mailbox_server::Mailbox;
use mailbox_wire::proto::{Detach, Garbled, v1};
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::gate::Ticket;
use super::refusal::{by_the_library, garbled, status};
use super::stream::messages;
use crate::calls::{Answered, Asking, purpose};
use crate::failure::{Answer, Failure};
use crate::listen::Cut;
use crate::protocols::http::Paced;
use crate::service::Service;

type Given<T> = Result<Response<T>, Status>;

/// The service, as gRPC sees it.
#[derive(Debug)]
pub(super) struct Methods(pub(super) Arc<Service>);

impl Methods {
    /// Does what is asked.
    async fn call<A, Q>(&self, request: Request<Q>) -> Given<A>
    where
        A: TryFrom<Reply, Error = Garbled>,
        call::Request: TryFrom<Q>,
        Garbled: From<<call::Request as TryFrom<Q>>::Error>,
    {
        let (_, extensions, message) = request.into_parts();
        let ticket = ticket(&extensions)?;
        let asked = call::Request::try_from(message).map_err(|bad| garbled(bad.into()));
        let answered = match asked {
            Ok(asked) => self.answer(&ticket, asked).await,
            Err(failure) => Err(failure),
        };
        self.given(&ticket, answered)
    }

    async fn answer(&self, ticket: &Ticket, asked: call::Request) -> Answer<Answered> {
        let purpose = purpose(&asked);
        let place = self.0.place_for(&ticket.caller, purpose, ticket.epoch).await?;
        let (caller, facts) = (ticket.caller.clone(), ticket.facts.clone());
        let room = std::mem::take(&mut *ticket.room.lock());
        self.0.answer(Asking { caller, facts, place, room }, asked).await
    }

    fn given<A>(&self, ticket: &Ticket, answered: Answer<Answered>) -> Given<A>
    where
        A: TryFrom<Reply, Error = Garbled>,
    {
        let reply = match answered {
            Ok(Answered::Reply(reply)) => reply,
            Ok(Answered::Messages(reply, hand_over)) => {
                ticket.in_body.add(hand_over);
                reply
            }
            Ok(Answered::Stream(_)) => return Err(self.failed(ticket, &mismatch())),
            Err(failure) => return Err(self.failed(ticket, &failure)),
        };
        let message = A::try_from(reply);
        message.map(Response::new).map_err(|_| self.failed(ticket, &mismatch()))
    }

    fn failed(&self, ticket: &Ticket, failure: &Failure) -> Status {
        *ticket.failed.lock() = Some(failure.error.kind());
        status(failure, &ticket.caller.corr_id)
    }

    /// What to receive, said first by one who keeps its side open.
    async fn first(&self, asked: &mut Streaming<v1::RecvRequest>) -> Answer<v1::RecvRequest> {
        let patience = self.0.settings().timeouts.read;
        let first = tokio::time::timeout(patience, asked.message()).await.map_err(|_| {
            Error::new(
                ErrorKind::Connection,
                "the message that says what to receive comes too late",
            )
        })?;
        let first = first.map_err(|bad| by_the_library(&bad))?;
        first.ok_or_else(|| {
            Failure::new(ErrorKind::InvalidParameter, "a message has to say what to receive")
        })
    }
}

/// The one that the gate has given.
fn ticket(extensions: &Extensions) -> Result<Ticket, Status> {
    extensions.get::<Ticket>().cloned().ok_or_else(|| Status::internal("a call from nowhere"))
}

fn mismatch() -> Failure {
    Failure::new(ErrorKind::Internal, "an answer to something else")
}

/// Until the client closes its side.
async fn closed(mut asked: Streaming<v1::RecvRequest>) {
    // Whatever else it says is not asked for; what ends it is that nothing more comes.
    while let Ok(Some(_)) = asked.message().await {}
}

#[tonic::async_trait]
impl Mailbox for Methods {
    type RecvStreamStream =
        Pin<Box<dyn Messages<Item = Result<v1::RecvStreamResponse, Status>> + Send>>;

    async fn recv_while_open(
        &self,
        request: Request<Streaming<v1::RecvRequest>>,
    ) -> Given<v1::RecvResponse> {
        let (_, extensions, mut asked) = request.into_parts();
        let ticket = ticket(&extensions)?;
        let first = match self.first(&mut asked).await {
            Ok(first) => first,
            Err(failure) => return Err(self.failed(&ticket, &failure)),
        };
        let answered = tokio::select! {
            biased;
            answered = self.answer(&ticket, first.into()) => answered,
            () = closed(asked) => return Ok(Response::new(v1::RecvResponse::default())),
        };
        self.given(&ticket, answered)
    }

    async fn recv_stream(
        &self,
        request: Request<v1::RecvRequest>,
    ) -> Given<Self::RecvStreamStream> {
        let (_, extensions, message) = request.into_parts();
        let ticket = ticket(&extensions)?;
        let asked = call::Request::ReceiveStream(message.into());
        match self.answer(&ticket, asked).await {
            Ok(Answered::Stream(stream)) => {
                let corr_id = Arc::clone(&ticket.caller.corr_id);
                let stream = stream.until(extensions.get::<Cut>().cloned().unwrap_or_default());
                let messages =
                    messages(Arc::clone(&self.0), Box::new(stream), ticket.in_body, corr_id);
                let mut response: Response<Self::RecvStreamStream> =
                    Response::new(Box::pin(messages));
                response.extensions_mut().insert(Paced);
                Ok(response)
            }
            Ok(_) => Err(self.failed(&ticket, &mismatch())),
            Err(failure) => Err(self.failed(&ticket, &failure)),
        }
    }

    async fn send(&self, mut request: Request<v1::SendRequest>) -> Given<v1::SendResponse> {
        request.get_mut().detach();
        self.call(request).await
    }

    async fn send_batch(
        &self,
        mut request: Request<v1::SendBatchRequest>,
    ) -> Given<v1::SendBatchResponse> {
        request.get_mut().detach();
        self.call(request).await
    }

    async fn recv(&self, request: Request<v1::RecvRequest>) -> Given<v1::RecvResponse> {
        self.call(request).await
    }

    async fn ack(&self, request: Request<v1::AckRequest>) -> Given<v1::Done> {
        self.call(request).await
    }

    async fn nack(&self, request: Request<v1::NackRequest>) -> Given<v1::Done> {
        self.call(request).await
    }

    async fn extend(&self, request: Request<v1::ExtendRequest>) -> Given<v1::Done> {
        self.call(request).await
    }

    async fn settle_batch(
        &self,
        request: Request<v1::SettleBatchRequest>,
    ) -> Given<v1::SettleBatchResponse> {
        self.call(request).await
    }

    async fn list_topics(
        &self,
        request: Request<v1::ListTopicsRequest>,
    ) -> Given<v1::ListTopicsResponse> {
        self.call(request).await
    }

    async fn get_topic(&self, request: Request<v1::GetTopicRequest>) -> Given<v1::Topic> {
        self.call(request).await
    }

    async fn configure_topic(
        &self,
        request: Request<v1::ConfigureTopicRequest>,
    ) -> Given<v1::Done> {
        self.call(request).await
    }

    async fn remove_topic(
        &self,
        request: Request<v1::RemoveTopicRequest>,
    ) -> Given<v1::RemoveTopicResponse> {
        self.call(request).await
    }

    async fn purge_topic(
        &self,
        request: Request<v1::PurgeTopicRequest>,
    ) -> Given<v1::PurgeTopicResponse> {
        self.call(request).await
    }

    async fn peek(&self, request: Request<v1::PeekRequest>) -> Given<v1::Records> {
        self.call(request).await
    }

    async fn look_up(&self, request: Request<v1::LookUpRequest>) -> Given<v1::Records> {
        self.call(request).await
    }

    async fn get_message(&self, request: Request<v1::GetMessageRequest>) -> Given<v1::Record> {
        self.call(request).await
    }

    async fn list_dead(&self, request: Request<v1::ListDeadRequest>) -> Given<v1::Records> {
        self.call(request).await
    }

    async fn reprocess(
        &self,
        request: Request<v1::ReprocessRequest>,
    ) -> Given<v1::ReprocessResponse> {
        self.call(request).await
    }

    async fn delete_dead(
        &self,
        request: Request<v1::DeleteDeadRequest>,
    ) -> Given<v1::DeleteDeadResponse> {
        self.call(request).await
    }

    async fn get_abilities(
        &self,
        request: Request<v1::GetAbilitiesRequest>,
    ) -> Given<v1::Abilities> {
        self.call(request).await
    }

    async fn mint_capability(
        &self,
        request: Request<v1::MintCapabilityRequest>,
    ) -> Given<v1::MintCapabilityResponse> {
        self.call(request).await
    }

    async fn revoke_capability(
        &self,
        request: Request<v1::RevokeCapabilityRequest>,
    ) -> Given<v1::RevokeCapabilityResponse> {
        self.call(request).await
    }

    async fn rotate_key(
        &self,
        request: Request<v1::RotateKeyRequest>,
    ) -> Given<v1::RotateKeyResponse> {
        self.call(request).await
    }
}

//! Each call, by its method.

use mailbox_wire::call::{Reply, Request};
use mailbox_wire::proto::v1::GetAbilitiesRequest;
use mailbox_wire::proto::{Detach, Garbled};
use tonic::{Response, Status};

use super::super::door::Failed;
use super::heard::Said;
use super::link::Client;
use super::refusal::failed;
use crate::error::{Error, ErrorKind};

/// Asks for this.
pub(super) async fn call(
    client: &mut Client,
    said: &Said,
    request: Request,
) -> Result<Reply, Failed> {
    use mailbox_wire::proto::v1;

    match request {
        Request::Send(it) => read(client.send(v1::SendRequest::from(it)).await, said),
        Request::SendBatch(it) => {
            read(client.send_batch(v1::SendBatchRequest::from(it)).await, said)
        }
        Request::Receive(it) => detached(client.recv(v1::RecvRequest::from(it)).await, said),
        Request::SettleBatch(it) => {
            read(client.settle_batch(v1::SettleBatchRequest::from(it)).await, said)
        }
        Request::Topics(it) => {
            read(client.list_topics(v1::ListTopicsRequest::from(it)).await, said)
        }
        Request::Topic(it) => read(client.get_topic(v1::GetTopicRequest::from(it)).await, said),
        Request::Configure(it) => {
            read(client.configure_topic(v1::ConfigureTopicRequest::from(it)).await, said)
        }
        Request::Remove(it) => {
            read(client.remove_topic(v1::RemoveTopicRequest::from(it)).await, said)
        }
        Request::Purge(it) => read(client.purge_topic(v1::PurgeTopicRequest::from(it)).await, said),
        Request::Peek(it) => detached(client.peek(v1::PeekRequest::from(it)).await, said),
        Request::LookUp(topic, it) => {
            detached(client.look_up(v1::LookUpRequest::from((topic, it))).await, said)
        }
        Request::Message(it) => {
            detached(client.get_message(v1::GetMessageRequest::from(it)).await, said)
        }
        Request::Dead(it) => detached(client.list_dead(v1::ListDeadRequest::from(it)).await, said),
        Request::Reprocess(it) => {
            read(client.reprocess(v1::ReprocessRequest::from(it)).await, said)
        }
        Request::DeleteDead(it) => {
            read(client.delete_dead(v1::DeleteDeadRequest::from(it)).await, said)
        }
        Request::Abilities => read(client.get_abilities(GetAbilitiesRequest {}).await, said),
        Request::Mint(it) => {
            read(client.mint_capability(v1::MintCapabilityRequest::from(it)).await, said)
        }
        Request::Revoke(it) => {
            read(client.revoke_capability(v1::RevokeCapabilityRequest::from(it)).await, said)
        }
        Request::Rotate(it) => read(client.rotate_key(v1::RotateKeyRequest::from(it)).await, said),
        Request::Settle(_) | Request::ReceiveStream(_) => {
            let message = "this client asks for one as for several, and for a stream elsewhere";
            Err(Failed::void(Error::new(ErrorKind::Internal, message)))
        }
    }
}

fn read<A>(answer: Result<Response<A>, Status>, said: &Said) -> Result<Reply, Failed>
where
    Reply: TryFrom<A, Error = Garbled>,
{
    let answer = answer.map_err(|status| failed(&status, said))?.into_inner();
    Reply::try_from(answer).map_err(|error| Failed::unusable(not_understood().with_source(error)))
}

/// The same with payloads: whoever keeps one does not keep all that came with it.
pub(super) fn detached<A: Detach>(
    answer: Result<Response<A>, Status>,
    said: &Said,
) -> Result<Reply, Failed>
where
    Reply: TryFrom<A, Error = Garbled>,
{
    let answer = answer.map(|mut answer| {
        answer.get_mut().detach();
        answer
    });
    read(answer, said)
}

pub(super) fn not_understood() -> Error {
    let message = "the service says something that this client does not understand";
    Error::new(ErrorKind::Internal, message)
}

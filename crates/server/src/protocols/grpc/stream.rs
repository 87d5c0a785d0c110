//! A receive that goes on, as a stream of messages. Invariant: a message is taken from the store
//! when the one before is out, so that at most one waits for a window of the client, the rest stays
//! where others can receive it, and nothing goes out that was not allowed at that moment. Whether
//! there is a window is not seen from here: one that waits in vain goes back when the stream is
//! reset.

use std::sync::Arc;

use futures_util::stream::{Stream as Messages, unfold};
use mailbox_wire::capability::Op;
use mailbox_wire::proto::v1::RecvStreamResponse;
use tonic::Status;

use super::refusal::status;
use crate::calls::{Next, Stream};
use crate::protocols::http::InBody;
use crate::service::Service;

/// Where a stream is.
struct At {
    in_body: InBody,
    corr_id: Arc<str>,
    service: Arc<Service>,
    /// Behind what it has handed out: that goes back before it ends.
    stream: Box<Stream>,
}

/// What comes, until the client leaves.
pub(super) fn messages(
    service: Arc<Service>,
    stream: Box<Stream>,
    in_body: InBody,
    corr_id: Arc<str>,
) -> impl Messages<Item = Result<RecvStreamResponse, Status>> + Send {
    let at = At { in_body, corr_id, service, stream };
    unfold(Some(at), async |at| {
        let at = at?;
        // Whoever encodes goes on as long as something is there: one message is a piece of its own.
        tokio::task::yield_now().await;
        next(at).await
    })
}

async fn next(mut at: At) -> Option<(Result<RecvStreamResponse, Status>, Option<At>)> {
    match at.stream.next_few(1).await {
        Ok(Next::Quiet) => Some((Ok(RecvStreamResponse::default()), Some(at))),
        Ok(Next::Messages(envelopes, hand_over)) => {
            at.in_body.add(hand_over);
            Some((Ok(RecvStreamResponse::from(envelopes.into_iter().next())), Some(at)))
        }
        // Says why, and ends. How it began was counted long ago.
        Err(failure) => {
            at.service.metrics.failed(Op::Receive.as_str(), failure.error.kind());
            Some((Err(status(&failure, &at.corr_id)), None))
        }
    }
}

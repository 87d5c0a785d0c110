//! Questions and answers as HTTP has them: a method, a path, and JSON.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use mailbox_wire::call::{Reply, Request};
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};

/// A call.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: Cow<'static, str>,
    pub(super) body: Bytes,
}

impl Call {
    /// What is asked, as it goes out.
    pub(super) fn of(request: &Request) -> Result<Self> {
        match request {
            Request::SendBatch(it) => Self::post("/v1/send/batch", it),
            Request::Receive(it) => Self::post("/v1/recv", it),
            Request::ReceiveStream(it) => Self::post("/v1/recv/stream", it),
            Request::SettleBatch(it) => Self::post("/v1/settle/batch", it),
            Request::Topics(it) => {
                let stats = it.stats.map(|stats| stats.to_string());
                let limit = it.limit.map(|limit| limit.to_string());
                let query = [("limit", limit), ("after", it.after.clone()), ("stats", stats)];
                Ok(Self::get(asked("/v1/topics".to_owned(), query)))
            }
            Request::Topic(it) => Ok(Self::get(topic(&it.topic))),
            Request::Configure(it) => {
                let body = json(&it.policy)?;
                Ok(Self { method: Method::PUT, path: topic(&it.topic).into(), body })
            }
            Request::Remove(it) => {
                let path = topic(&it.topic).into();
                Ok(Self { method: Method::DELETE, path, body: Bytes::new() })
            }
            Request::Purge(it) => {
                let path = format!("/v1/topics/{}/purge", it.topic).into();
                Ok(Self { method: Method::POST, path, body: Bytes::new() })
            }
            Request::Peek(it) => {
                let limit = it.limit.map(|limit| limit.to_string());
                Ok(Self::get(asked(format!("/v1/topics/{}/peek", it.topic), [("limit", limit)])))
            }
            Request::LookUp(topic, it) => Self::post(format!("/v1/topics/{topic}/lookup"), it),
            Request::Dead(it) => {
                let after = it.after.map(|after| after.to_string());
                let limit = it.limit.map(|limit| limit.to_string());
                let query = [("limit", limit), ("after", after)];
                Ok(Self::get(asked(format!("/v1/dlq/{}", it.topic), query)))
            }
            Request::Reprocess(it) => Self::post("/v1/dlq/reprocess", it),
            Request::DeleteDead(it) => Self::post("/v1/dlq/delete", it),
            Request::Abilities => Ok(Self::get("/v1/abilities")),
            Request::Mint(it) => Self::post("/v1/caps/mint", it),
            Request::Revoke(it) => Self::post("/v1/caps/revoke", it),
            Request::Rotate(it) => Self::post("/v1/caps/rotate", it),
            Request::Send(_) | Request::Settle(_) | Request::Message(_) => {
                let message = "this client asks for one as for several";
                Err(Error::new(ErrorKind::Internal, message))
            }
        }
    }

    fn get(path: impl Into<Cow<'static, str>>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new() }
    }

    fn post(path: impl Into<Cow<'static, str>>, question: &impl Serialize) -> Result<Self> {
        Ok(Self { method: Method::POST, path: path.into(), body: json(question)? })
    }
}

fn topic(topic: &str) -> String {
    format!("/v1/topics/{topic}")
}

/// A path with what is asked behind it. None of the values has a sign in it that would have to be
/// written otherwise: they are numbers, and names of mailboxes.
fn asked<const N: usize>(mut path: String, query: [(&str, Option<String>); N]) -> String {
    let mut sign = '?';
    for (key, value) in query {
        let Some(value) = value else { continue };
        path.push(sign);
        path.push_str(key);
        path.push('=');
        path.push_str(&value);
        sign = '&';
    }
    path
}

/// A question as it goes out.
fn json(question: &impl Serialize) -> Result<Bytes> {
    let written = serde_json::to_vec(question);
    written.map(Bytes::from).map_err(|error| {
        Error::new(ErrorKind::Internal, "the call cannot be written").with_source(error)
    })
}

/// What is answered to this.
pub(super) fn reply(request: &Request, body: &[u8]) -> serde_json::Result<Reply> {
    use serde_json::from_slice;

    match request {
        Request::Send(_) => from_slice(body).map(Reply::Sent),
        Request::SendBatch(_) => from_slice(body).map(Reply::SentBatch),
        Request::Receive(_) | Request::ReceiveStream(_) => from_slice(body).map(Reply::Received),
        Request::Settle(_) | Request::Configure(_) => from_slice(body).map(Reply::Done),
        Request::SettleBatch(_) => from_slice(body).map(Reply::SettledBatch),
        Request::Topics(_) => from_slice(body).map(Reply::Topics),
        Request::Topic(_) => from_slice(body).map(Reply::Topic),
        Request::Remove(_) => from_slice(body).map(Reply::Removed),
        Request::Purge(_) => from_slice(body).map(Reply::Purged),
        Request::Peek(_) | Request::LookUp(..) | Request::Dead(_) => {
            from_slice(body).map(Reply::Records)
        }
        Request::Message(_) => from_slice(body).map(Reply::Record),
        Request::Reprocess(_) => from_slice(body).map(Reply::Reprocessed),
        Request::DeleteDead(_) => from_slice(body).map(Reply::Deleted),
        Request::Abilities => from_slice(body).map(Reply::Abilities),
        Request::Mint(_) => from_slice(body).map(Reply::Minted),
        Request::Revoke(_) => from_slice(body).map(Reply::Revoked),
        Request::Rotate(_) => from_slice(body).map(Reply::Rotated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailbox_wire::call::TopicsRequest;

    #[test]
    fn what_is_not_asked_is_not_in_the_path() {
        for (after, limit, path) in [
            (None, None, "/v1/topics"),
            (Some("a"), None, "/v1/topics?after=a"),
            (Some("a"), Some(7), "/v1/topics?limit=7&after=a"),
        ] {
            let request = TopicsRequest { after: after.map(str::to_owned), limit, stats: None };
            let call = Call::of(&Request::Topics(request)).unwrap();
            assert_eq!((call.method, &*call.path), (Method::GET, path));
        }
    }
}

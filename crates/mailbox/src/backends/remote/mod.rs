//! Mailboxes of a service, over HTTP.
//!
//! * **Model**: every call is a request to a service (`mailbox serve`), which keeps the messages in
//!   whatever home it has.
//! * **Durability**: the service's; `send` returns when it has answered (D2).
//! * **Ordering**, **clock**, **limits**: the service's; asked for when it is opened.
//! * **Cancel safety**: a dropped receive gives back what the service had handed out; a dropped
//!   send or settle may have taken effect.
//! * **Integrity**: hashes of every message are compared; one that is not what was sent becomes a
//!   dead letter (I4).
//! * **Operations notes**: connections are kept for the next call. A service that cannot be
//!   reached, or says that it stops, is tried again for a while ([`RemoteConfig::patience`]); what
//!   may have been carried out is not repeated unless that does no harm, and is `Connection` then.

mod calls;
mod capabilities;
mod config;
mod convert;
mod link;
mod receive;
mod stream;
mod target;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use http::Method;
use mailbox_core::Policy;
use mailbox_wire::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::abilities::Abilities;
use crate::address::Address;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::{Error, ErrorKind, Result};
use crate::figure::Figure;
use crate::name::Name;
use crate::options::ReceiveOptions;

use calls::{Again, Call, Calls};
use target::Target;

pub use config::RemoteConfig;
pub use stream::RemoteStream;

/// A service. One backend is everything that its capability covers.
#[derive(Debug)]
pub struct RemoteBackend {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    calls: Calls,
    abilities: Abilities,
    /// Largest body that the service takes.
    max_body: usize,
    closed: CancellationToken,
    /// Receives that were dropped and are not over yet.
    leaving: AtomicUsize,
    left: Notify,
}

/// What can be said of a service behind the `?` of an address.
const OPTIONS: [&str; 2] = ["ca", "cap_file"];
/// Largest capability file.
const CAPABILITY_LEN: u64 = 16 * 1024;
/// Room that a request needs beside its messages.
const FRAME: usize = 4096;

impl RemoteBackend {
    /// Opens the service at `http://host:port`, and asks what it can do.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad address; `Connection` if nobody answers there; `Unauthorized`
    /// if the capability is not good.
    ///
    /// # Cancel safety
    /// Safe: connections are dropped.
    pub async fn open_with(url: &str, config: RemoteConfig) -> Result<Arc<Self>> {
        let Some((scheme @ ("http" | "https"), place)) = url.split_once("://") else {
            let message = "a service is at http://host:port or https://host:port";
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        };
        Self::open_at(scheme, place.trim_end_matches('/'), config).await
    }

    /// Opens the service that an address leads to. The capability is in the file that the option
    /// `cap_file` names, or in the environment variable `MAILBOX_CAP`: the service gets to see it,
    /// so let no address lead here that a stranger has written and no allow-list has passed.
    ///
    /// # Errors
    /// As [`RemoteBackend::open_with`].
    ///
    /// # Cancel safety
    /// Safe: connections are dropped.
    pub async fn at(address: &Address) -> Result<Arc<Self>> {
        address.allow_options(&OPTIONS)?;
        let capability = match address.options().get("cap_file") {
            Some(path) => Some(read_capability(path)?),
            None => std::env::var("MAILBOX_CAP").ok().filter(|text| !text.is_empty()),
        };
        let ca = address.options().get("ca").map(Into::into);
        let config = RemoteConfig { capability, ca, ..RemoteConfig::default() };
        Self::open_at(address.scheme(), address.place(), config).await
    }

    async fn open_at(scheme: &str, place: &str, config: RemoteConfig) -> Result<Arc<Self>> {
        let calls = Calls::new(Target::read(scheme, place, &config)?, config)?;
        let abilities: json::Abilities = calls.make(Call::get("/v1/abilities")).await?;
        let inner = Inner {
            calls,
            abilities: convert::abilities(&abilities),
            max_body: usize::try_from(abilities.max_body).unwrap_or(usize::MAX),
            closed: CancellationToken::new(),
            leaving: AtomicUsize::new(0),
            left: Notify::new(),
        };
        Ok(Arc::new(Self { inner: Arc::new(inner) }))
    }
}

fn read_capability(path: &str) -> Result<String> {
    use std::io::Read;

    let read = || {
        let mut text = String::new();
        std::fs::File::open(path)?.take(CAPABILITY_LEN).read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    };
    read().map_err(|error: std::io::Error| {
        let message = format!("the capability in {path} cannot be read");
        Error::new(ErrorKind::InvalidParameter, message).with_field("cap_file").with_source(error)
    })
}

impl Inner {
    /// Refuses calls after the end, and waits for those that were given up.
    async fn begin(&self, mailbox: &Name) -> Result<()> {
        if self.closed.is_cancelled() {
            return Err(Error::closed(mailbox));
        }
        self.settle_down().await;
        Ok(())
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        let mut results = Vec::with_capacity(batch.len());
        let mut rest = batch.into_iter().peekable();
        while rest.peek().is_some() || results.is_empty() {
            let (mut some, mut len) = (Vec::new(), FRAME);
            while let Some(next) = rest.peek() {
                len += convert::wire_len(next);
                if !some.is_empty() && len > self.max_body {
                    break;
                }
                some.extend(rest.next());
            }
            let count = some.len();
            match self.send_some(mailbox, some).await {
                Ok(sent) => results.extend(sent),
                Err(error) if results.is_empty() && rest.peek().is_none() => return Err(error),
                // Of some it is known what became of them: so it must be said of each.
                Err(error) => results.extend((0..count).map(|_| Err(error.clone()))),
            }
            if count == 0 {
                break;
            }
        }
        Ok(results)
    }

    async fn send_some(&self, mailbox: &Name, some: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        let is_keyed = some.iter().all(|message| message.idempotency_key.is_some());
        let again = if is_keyed { Again::Yes } else { Again::No };
        let count = some.len();
        let question = json::SendBatchRequest {
            topic: Some(mailbox.to_string()),
            messages: some.into_iter().map(convert::message).collect(),
        };
        let sent: json::SentBatch =
            self.calls.make(Call::post("/v1/send/batch", &question, again)?).await?;
        if sent.results.len() != count {
            return Err(Error::new(ErrorKind::Internal, "the service gave too few answers"));
        }
        Ok(sent.results.into_iter().map(convert::sent).collect())
    }

    async fn settle(
        &self,
        mailbox: &Name,
        batch: Vec<Settlement>,
        again: Again,
    ) -> Result<Vec<Result<()>>> {
        // A handle says which mailbox it is of: one of another is none of this one.
        let prefix = format!("{mailbox}/");
        let is_own = |it: &Settlement| it.receipt_handle.to_string().starts_with(&prefix);
        let own: Vec<bool> = batch.iter().map(is_own).collect();
        let items = batch.into_iter().zip(&own).filter(|(_, is_own)| **is_own);
        let items: Vec<_> = items.map(|(it, _)| convert::settlement(it)).collect();
        let (count, question) = (items.len(), json::SettleBatchRequest { items });
        let mut settled = Vec::new().into_iter();
        if count > 0 {
            let call = Call::post("/v1/settle/batch", &question, again)?;
            let answer: json::SettledBatch = self.calls.make(call).await?;
            if answer.results.len() != count {
                return Err(Error::new(ErrorKind::Internal, "the service gave too few answers"));
            }
            settled = answer.results.into_iter();
        }
        let mut next = |is_own: bool| if is_own { settled.next() } else { None };
        let result = |is_own: bool| match next(is_own) {
            Some(result) => convert::settled(result),
            None => {
                let message = "receipt handle expired: it is not of this mailbox";
                let error = Error::new(ErrorKind::ReceiptHandleExpired, message);
                Err(error.with_mailbox(mailbox))
            }
        };
        Ok(own.into_iter().map(result).collect())
    }

    async fn topic(&self, mailbox: &Name) -> Result<json::Topic> {
        self.calls.make(Call::get(&format!("/v1/topics/{mailbox}"))).await
    }
}

#[async_trait]
impl Backend for RemoteBackend {
    fn abilities(&self) -> &Abilities {
        &self.inner.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        format!("{}/{mailbox}", self.inner.calls.target.base())
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.inner.begin(mailbox).await?;
        self.inner
            .abilities
            .check_batch("batch", batch.len())
            .map_err(|error| error.with_mailbox(mailbox))?;
        self.inner.send(mailbox, batch).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.inner.begin(mailbox).await?;
        // Here, where nothing has been rounded yet.
        let checked = self.inner.abilities.check_receive(options);
        checked.map_err(|error| error.with_mailbox(mailbox))?;
        self.inner.receive(mailbox, options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.inner.begin(mailbox).await?;
        self.inner
            .abilities
            .check_batch("batch", batch.len())
            .map_err(|error| error.with_mailbox(mailbox))?;
        self.inner.settle(mailbox, batch, Again::No).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.inner.begin(mailbox).await?;
        let calls = &self.inner.calls;
        let found: json::Records = match request {
            Peek::Live { limit } => {
                let path = format!("/v1/topics/{mailbox}/peek?limit={limit}");
                calls.make(Call::get(&path)).await?
            }
            Peek::Dead { after, limit } => {
                let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
                let path = format!("/v1/dlq/{mailbox}?limit={limit}{after}");
                calls.make(Call::get(&path)).await?
            }
            Peek::These(ids) => {
                let msg_ids = ids.iter().map(ToString::to_string).collect();
                let question = json::LookUpRequest { msg_ids };
                let path = format!("/v1/topics/{mailbox}/lookup");
                calls.make(Call::post(&path, &question, Again::Yes)?).await?
            }
        };
        found.messages.into_iter().map(convert::record).collect()
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.inner.begin(mailbox).await?;
        convert::stats(&self.inner.topic(mailbox).await?.stats)
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.inner.begin(mailbox).await?;
        let path = format!("/v1/topics/{mailbox}/purge");
        let call = Call::new(Method::POST, &path, bytes::Bytes::new(), Again::No);
        let purged: json::Purged = self.inner.calls.make(call).await?;
        Ok(purged.removed)
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.inner.begin(mailbox).await?;
        let question = convert::dead(mailbox, which);
        let call = Call::post("/v1/dlq/reprocess", &question, Again::No)?;
        let done: json::Reprocessed = self.inner.calls.make(call).await?;
        Ok(done.reprocessed)
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.inner.begin(mailbox).await?;
        let question = convert::dead(mailbox, which);
        let call = Call::post("/v1/dlq/delete", &question, Again::No)?;
        let done: json::Deleted = self.inner.calls.make(call).await?;
        Ok(done.deleted)
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.inner.begin(mailbox).await?;
        let path = format!("/v1/topics/{mailbox}");
        let body = calls::json(&convert::policy_change(&policy))?;
        let call = Call::new(Method::PUT, &path, body, Again::Yes);
        self.inner.calls.make::<json::Ok>(call).await.map(drop)
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.inner.begin(mailbox).await?;
        convert::policy(&self.inner.topic(mailbox).await?.policy)
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        const PAGE: usize = 1000;

        if self.inner.closed.is_cancelled() {
            return Err(Error::new(ErrorKind::Closed, "the service was closed"));
        }
        self.inner.settle_down().await;
        let mut names: Vec<Name> = Vec::new();
        while names.len() < limit {
            let most = (limit - names.len()).min(PAGE);
            let after = names.last().or(after);
            let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
            let path = format!("/v1/topics?limit={most}{after}");
            let page: json::Topics = self.inner.calls.make(Call::get(&path)).await?;
            let count = page.topics.len();
            for entry in page.topics {
                names.push(Name::parse(&entry.topic)?);
            }
            if count < most {
                break;
            }
        }
        Ok(names)
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.inner.begin(mailbox).await?;
        let path = format!("/v1/topics/{mailbox}");
        let call = Call::new(Method::DELETE, &path, bytes::Bytes::new(), Again::No);
        let removed: json::Removed = self.inner.calls.make(call).await?;
        Ok(removed.removed)
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.inner.closed.cancel();
        self.inner.settle_down().await;
        Ok(())
    }
}

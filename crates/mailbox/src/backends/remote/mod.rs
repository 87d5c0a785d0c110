//! Mailboxes of a service: over HTTP; with the feature `grpc` over gRPC, with the feature `oap`
//! over OAP/1. They differ in how a request gets there, and in nothing else.
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
//!   may have been carried out is not repeated unless that does no harm, and is `Connection` then,
//!   of which [`Error::is_in_doubt`](crate::Error::is_in_doubt) says so. A capability in a file
//!   (`cap_file`) is read again when the service says that the one it had is not good any more.
//!   Over HTTP a connection has one call at a time. Over gRPC and OAP/1 calls share a few
//!   ([`RemoteConfig::connections`]); receives that wait, and streams, have others; and single
//!   sends to one mailbox, and single settlements, that are made while others are in flight go out
//!   together. Over gRPC a request with several messages in it is smaller than 4 MiB. A payload may
//!   be as large as the service's store takes, and 32 MiB: an answer is read up to 64 MiB.
//! * **Runtimes**: one backend can be used from several. Each has connections of its own
//!   ([`RemoteConfig::connections`] of them), and what it sends goes out together with what is sent
//!   on the same runtime: so no call waits for a runtime that nobody drives, as is one with a
//!   single thread (`current_thread`) between two calls of `block_on`. A call, or a stream, ends on
//!   the runtime where it was begun: with that it is `Connection`. The mailboxes of `blocking`
//!   share one runtime, which is always driven.

mod answer;
mod calls;
mod capabilities;
mod capability;
mod capability_file;
#[cfg(test)]
#[cfg(any(feature = "grpc", feature = "oap"))]
mod certificate;
mod config;
mod connect;
mod convert;
mod door;
mod gather;
#[cfg(feature = "grpc")]
mod grpc;
mod http;
#[cfg(test)]
mod idle;
mod list;
mod local;
#[cfg(feature = "oap")]
mod oap;
#[cfg(any(feature = "grpc", feature = "oap"))]
mod places;
#[cfg(any(feature = "grpc", feature = "oap"))]
mod pool;
mod receive;
mod runtimes;
mod send;
mod settle;
mod stream;
mod target;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use mailbox_core::Policy;
use mailbox_wire::call::{ConfigureRequest, DeadListRequest, PeekRequest, Request, TopicRequest};
use mailbox_wire::json;
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

use calls::{Again, Calls};
use capability_file::CapabilityFile;
use door::Door;
use http::HttpDoor;
use local::Local;
use runtimes::PerRuntime;
use target::Target;

pub use config::RemoteConfig;
pub use stream::RemoteStream;

/// A service. One backend is everything that its capability covers.
#[derive(Debug)]
pub struct RemoteBackend {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    calls: Calls,
    abilities: Abilities,
    /// Largest request with several things in it that gets through.
    most: usize,
    closed: CancellationToken,
    /// What is asked for one by one goes out together.
    gathers: bool,
    locals: PerRuntime<Local>,
}

/// What can be said of a service behind the `?` of an address.
const OPTIONS: [&str; 2] = ["ca", "cap_file"];

impl RemoteBackend {
    /// Opens the service at `http://host:port`, `https:`, `grpc:`, `grpcs:`, `oap:` or `oaps:`, and
    /// asks what it can do.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad address, one where something else is spoken, or a certificate
    /// that is not trusted; `Unsupported` for a protocol that was not built in; `Connection` if
    /// nobody answers there; `Unauthorized` if the capability is not good.
    ///
    /// # Cancel safety
    /// Safe: connections are dropped.
    pub async fn open_with(url: &str, config: RemoteConfig) -> Result<Arc<Self>> {
        let Some((scheme, place)) = url.split_once("://") else {
            let message = "a service is at http://host:port, or another of its protocols";
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        };
        Self::open_at(scheme, place.trim_end_matches('/'), config).await
    }

    /// Opens the service that an address leads to. The capability is in the file that the option
    /// `cap_file` names, which may be replaced before that capability ends, or in the environment
    /// variable `MAILBOX_CAP`: the service gets to see it,
    /// so let no address lead here that a stranger has written and no allow-list has passed.
    ///
    /// # Errors
    /// As [`RemoteBackend::open_with`].
    ///
    /// # Cancel safety
    /// Safe: connections are dropped.
    pub async fn at(address: &Address) -> Result<Arc<Self>> {
        address.allow_options(&OPTIONS)?;
        let path = |option| address.options().get(option).map(Into::into);
        let (ca, capability_file) = (path("ca"), path("cap_file"));
        let in_environment = || std::env::var("MAILBOX_CAP").ok().filter(|text| !text.is_empty());
        let capability = if capability_file.is_some() { None } else { in_environment() };
        let config = RemoteConfig { capability, capability_file, ca, ..RemoteConfig::default() };
        Self::open_at(address.scheme(), address.place(), config).await
    }

    async fn open_at(scheme: &str, place: &str, mut config: RemoteConfig) -> Result<Arc<Self>> {
        let mut file = None;
        if let Some(path) = &config.capability_file {
            let (opened, capability) = CapabilityFile::open(path)?;
            (file, config.capability) = (Some(opened), Some(capability));
        }
        let target = Target::read(scheme, place, &config)?;
        let calls = Calls::new(door(target, &config)?, &config, file);
        let abilities: json::Abilities = calls.ask(&Request::Abilities, Again::Yes).await?;
        let max_body = usize::try_from(abilities.max_body).unwrap_or(usize::MAX);
        let gathers = calls.door().gathers();
        let inner = Inner {
            most: calls.door().most(max_body),
            calls,
            abilities: convert::abilities(&abilities),
            closed: CancellationToken::new(),
            gathers,
            locals: PerRuntime::default(),
        };
        Ok(Arc::new(Self { inner: Arc::new(inner) }))
    }
}

/// The door that an address is of.
fn door(target: Target, config: &RemoteConfig) -> Result<Box<dyn Door>> {
    match target.scheme {
        "http" | "https" => Ok(Box::new(HttpDoor::new(target, config)?)),
        #[cfg(feature = "grpc")]
        "grpc" | "grpcs" => {
            let authorization = http::authorization(config)?;
            Ok(Box::new(grpc::GrpcDoor::new(target, authorization, config.connections)?))
        }
        #[cfg(feature = "oap")]
        "oap" | "oaps" => Ok(Box::new(oap::OapDoor::new(target, config)?)),
        scheme => {
            let feature = scheme.trim_end_matches('s');
            let message =
                format!("{scheme}: services need the feature `{feature}` of the crate `mailbox`");
            Err(Error::new(ErrorKind::Unsupported, message).with_field("address"))
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("door", self.calls.door()).finish_non_exhaustive()
    }
}

impl Inner {
    /// Refuses calls after the end, and waits for those that were given up.
    async fn begin(&self, mailbox: &Name) -> Result<()> {
        self.begin_any().await.map_err(|_| Error::closed(mailbox))
    }

    /// The same for what is about no mailbox.
    async fn begin_any(&self) -> Result<()> {
        let check = || match self.closed.is_cancelled() {
            true => Err(Error::new(ErrorKind::Closed, "the service was closed")),
            false => Ok(()),
        };
        check()?;
        self.settle_down().await;
        // It may have been closed meanwhile.
        check()
    }

    /// What there is on this runtime.
    fn local(&self) -> Arc<Local> {
        self.locals.here(Local::default)
    }

    async fn topic(&self, mailbox: &Name) -> Result<json::Topic> {
        self.calls.ask(&Request::Topic(named(mailbox)), Again::Yes).await
    }
}

fn named(mailbox: &Name) -> TopicRequest {
    TopicRequest { topic: mailbox.to_string() }
}

#[async_trait]
impl Backend for RemoteBackend {
    fn abilities(&self) -> &Abilities {
        &self.inner.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        format!("{}/{mailbox}", self.inner.calls.door().base())
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.inner.begin(mailbox).await?;
        self.inner
            .abilities
            .check_batch("batch", batch.len())
            .map_err(|error| error.with_mailbox(mailbox))?;
        match <[Outgoing; 1]>::try_from(batch) {
            Ok([message]) if self.inner.gathers => {
                let lane = (mailbox.clone(), send::again([&message]));
                let message = convert::message(message);
                Ok(vec![gather::ask_one(&self.inner, lane, message).await])
            }
            Ok(one) => self.inner.send(mailbox, one.into()).await,
            Err(batch) => self.inner.send(mailbox, batch).await,
        }
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
        match <[Settlement; 1]>::try_from(batch) {
            Ok([settlement]) if self.inner.gathers => {
                if !settle::is_own(mailbox, &settlement) {
                    return Ok(vec![Err(settle::not_own(mailbox))]);
                }
                let (lane, item) = ((mailbox.clone(), Again::No), convert::settlement(settlement));
                Ok(vec![gather::ask_one(&self.inner, lane, item).await])
            }
            Ok(one) => self.inner.settle(mailbox, one.into(), Again::No).await,
            Err(batch) => self.inner.settle(mailbox, batch, Again::No).await,
        }
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.inner.begin(mailbox).await?;
        let topic = mailbox.to_string();
        let request = match request {
            Peek::Live { limit } => Request::Peek(PeekRequest { topic, limit: Some(*limit) }),
            Peek::Dead { after, limit } => {
                Request::Dead(DeadListRequest { topic, after: *after, limit: Some(*limit) })
            }
            Peek::These(ids) => {
                let msg_ids = ids.iter().map(ToString::to_string).collect();
                Request::LookUp(topic, json::LookUpRequest { msg_ids })
            }
        };
        let found: json::Records = self.inner.calls.ask(&request, Again::Yes).await?;
        let record = |found| convert::record(mailbox, found);
        let records: Result<Vec<_>> = found.messages.into_iter().map(record).collect();
        records.map_err(|error| error.with_mailbox(mailbox))
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.inner.begin(mailbox).await?;
        convert::stats(&self.inner.topic(mailbox).await?.stats)
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.inner.begin(mailbox).await?;
        let request = Request::Purge(named(mailbox));
        let purged: json::Purged = self.inner.calls.ask(&request, Again::No).await?;
        Ok(purged.removed)
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.inner.begin(mailbox).await?;
        let request = Request::Reprocess(convert::dead(mailbox, which));
        let done: json::Reprocessed = self.inner.calls.ask(&request, Again::No).await?;
        Ok(done.reprocessed)
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.inner.begin(mailbox).await?;
        let request = Request::DeleteDead(convert::dead(mailbox, which));
        let done: json::Deleted = self.inner.calls.ask(&request, Again::No).await?;
        Ok(done.deleted)
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.inner.begin(mailbox).await?;
        let (topic, policy) = (mailbox.to_string(), convert::policy_change(&policy));
        let request = Request::Configure(ConfigureRequest { topic, policy });
        self.inner.calls.ask::<json::Ok>(&request, Again::Yes).await.map(drop)
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.inner.begin(mailbox).await?;
        convert::policy(&self.inner.topic(mailbox).await?.policy)
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.inner.begin_any().await?;
        self.inner.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.inner.begin(mailbox).await?;
        let request = Request::Remove(named(mailbox));
        let removed: json::Removed = self.inner.calls.ask(&request, Again::No).await?;
        Ok(removed.removed)
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.inner.closed.cancel();
        self.inner.settle_down_everywhere().await;
        Ok(())
    }
}

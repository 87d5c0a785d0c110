//! From an address to a mailbox.

use std::sync::Arc;

use mailbox_core::Policy;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::backend::Backend;
use crate::backends::memory::{MemoryBackend, MemoryConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;

/// Schemes of the grammar that no backend has yet, and which one will.
const PLANNED: &[(&str, &str)] = &[("sqs", "sqs")];

/// What keeps the mailbox at an address: for programs that pass on the calls of others. The name
/// to call it with is [`Address::name`].
///
/// Whoever opens a backend closes it. A journal is shared by everybody in this process who opens
/// it so, and is let go of when all of them have closed it.
///
/// # Errors
/// `InvalidParameter` for an unknown scheme or option; `Unsupported` for a scheme whose backend is
/// only planned, or was not built in; `NotFound` for a place in memory that is not there; whatever
/// opening the backend gives.
///
/// # Cancel safety
/// Safe: a backend that was being opened is dropped.
pub async fn open_backend(address: &Address) -> Result<Arc<dyn Backend>> {
    open_with(address, None).await
}

/// The same for one who keeps the mailboxes of others, such as a service: mailboxes that were not
/// configured themselves have these rules. In memory it is a namespace of its own.
///
/// # Errors
/// As [`open_backend`]; `InvalidParameter` if the rules make no sense, or if rules are elsewhere.
///
/// # Cancel safety
/// Safe: a backend that was being opened is dropped.
pub async fn open_store(address: &Address, rules: Policy) -> Result<Arc<dyn Backend>> {
    open_with(address, Some(rules)).await
}

async fn open_with(address: &Address, rules: Option<Policy>) -> Result<Arc<dyn Backend>> {
    match address.scheme() {
        "memory" => memory(address, rules),
        "journal" => journal(address, rules).await,
        "dir" => directory(address, rules).await,
        "redis" | "rediss" | "redis+cluster" | "redis+sentinel" => redis(address, rules).await,
        "http" | "https" | "grpc" | "grpcs" | "oap" | "oaps" => remote(address, rules).await,
        scheme => Err(unknown(address, scheme).with_field("address")),
    }
}

pub(crate) async fn open<T, R>(address: &Address) -> Result<Mailbox<T, R>>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let mailbox = Mailbox::new(open_backend(address).await?, address.name().clone());
    // What is in memory belongs to the process, not to whoever opens it.
    Ok(if address.scheme() == "memory" { mailbox } else { mailbox.owning_its_backend() })
}

fn unknown(address: &Address, scheme: &str) -> Error {
    let Some((_, backend)) = PLANNED.iter().find(|(planned, _)| *planned == scheme) else {
        let message = format!(
            "no such scheme: {scheme}:; there are memory:, journal:, dir:, redis:, rediss:, \
             redis+cluster:, redis+sentinel:, http:, https:, grpc:, grpcs:, oap: and oaps:"
        );
        return Error::new(ErrorKind::InvalidParameter, message);
    };
    let message = format!(
        "{address}: {backend} mailboxes are planned; today: memory, journal, dir, redis, http, \
         grpc, oap"
    );
    Error::new(ErrorKind::Unsupported, message)
}

fn memory(address: &Address, rules: Option<Policy>) -> Result<Arc<dyn Backend>> {
    address.allow_options(&[])?;
    if let Some(rules) = rules {
        return Ok(MemoryBackend::with_config(MemoryConfig::default().with_policy(rules))?);
    }
    let backend = MemoryBackend::at(address.place()).ok_or_else(|| {
        let message = format!("{address}: there is no such place in this process");
        Error::new(ErrorKind::NotFound, message).with_field("address")
    })?;
    Ok(backend.reached())
}

/// The journal that an address leads to, shared with everybody in this process who opens it so.
#[cfg(feature = "journal")]
async fn journal(address: &Address, rules: Option<Policy>) -> Result<Arc<dyn Backend>> {
    use crate::backends::journal::{JournalBackend, JournalConfig};

    address.allow_options(&["durability", "ack"])?;
    if address.place().is_empty() {
        let message = format!("{address}: names no directory; write journal:path/name");
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
    }
    let mut config = JournalConfig::default();
    config.policy = rules.unwrap_or(config.policy);
    if let Some(durability) = address.options().get("durability") {
        config.durability = durability.parse()?;
    }
    if let Some(ack) = address.options().get("ack") {
        config.settle = ack.parse()?;
    }
    Ok(JournalBackend::shared(address.place().as_ref(), config).await?)
}

#[cfg(not(feature = "journal"))]
async fn journal(address: &Address, _: Option<Policy>) -> Result<Arc<dyn Backend>> {
    let message = format!("{address}: journals need the feature `journal` of the crate `mailbox`");
    Err(Error::new(ErrorKind::Unsupported, message).with_field("address"))
}

/// The folder of inboxes that an address leads to.
#[cfg(all(feature = "directory", target_os = "linux"))]
async fn directory(address: &Address, rules: Option<Policy>) -> Result<Arc<dyn Backend>> {
    use crate::backends::directory::{DirectoryBackend, DirectoryConfig};

    address.allow_options(&["durability", "ack", "sender", "shared", "events"])?;
    let mut config = DirectoryConfig::default();
    config.policy = rules.unwrap_or(config.policy);
    if let Some(durability) = address.options().get("durability") {
        config.durability = durability.parse()?;
    }
    if let Some(ack) = address.options().get("ack") {
        config.settle = ack.parse()?;
    }
    if let Some(sender) = address.options().get("sender") {
        config.sender.clone_from(sender);
    }
    config.shared = yes_or_no(address, "shared", config.shared)?;
    config.events = yes_or_no(address, "events", config.events)?;
    // Without a path the inbox is in the current directory.
    let place = if address.place().is_empty() { "." } else { address.place() };
    Ok(DirectoryBackend::open_with(place, config).await?)
}

/// The value of an option that is yes or no.
#[cfg(any(feature = "redis", all(feature = "directory", target_os = "linux")))]
pub(crate) fn yes_or_no(address: &Address, option: &'static str, otherwise: bool) -> Result<bool> {
    match address.options().get(option).map(String::as_str) {
        None => Ok(otherwise),
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(other) => Err(Error::invalid(option, format_args!("{other:?}"), "yes, no")),
    }
}

#[cfg(not(all(feature = "directory", target_os = "linux")))]
async fn directory(address: &Address, _: Option<Policy>) -> Result<Arc<dyn Backend>> {
    let message =
        format!("{address}: inboxes need Linux and the feature `directory` of the crate `mailbox`");
    Err(Error::new(ErrorKind::Unsupported, message).with_field("address"))
}

/// The servers that an address leads to.
#[cfg(feature = "redis")]
async fn redis(address: &Address, rules: Option<Policy>) -> Result<Arc<dyn Backend>> {
    Ok(crate::backends::redis::RedisBackend::at_with(address, rules).await?)
}

/// The value of an option that is a whole number.
#[cfg(feature = "redis")]
pub(crate) fn whole_number<N: std::str::FromStr>(
    address: &Address,
    option: &'static str,
) -> Result<Option<N>> {
    let Some(text) = address.options().get(option) else { return Ok(None) };
    let refused = |_: N::Err| {
        Error::invalid(option, format_args!("{text:.40?}"), "a whole number (times: of seconds)")
    };
    text.parse().map(Some).map_err(refused)
}

#[cfg(not(feature = "redis"))]
async fn redis(address: &Address, _: Option<Policy>) -> Result<Arc<dyn Backend>> {
    let message = format!("{address}: Redis needs the feature `redis` of the crate `mailbox`");
    Err(Error::new(ErrorKind::Unsupported, message).with_field("address"))
}

/// The service that an address leads to.
#[cfg(feature = "remote")]
async fn remote(address: &Address, rules: Option<Policy>) -> Result<Arc<dyn Backend>> {
    if rules.is_some() {
        let message = format!("{address}: the rules of mailboxes are that service's own");
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
    }
    Ok(crate::backends::remote::RemoteBackend::at(address).await?)
}

#[cfg(not(feature = "remote"))]
async fn remote(address: &Address, _: Option<Policy>) -> Result<Arc<dyn Backend>> {
    let message = format!("{address}: services need the feature `remote` of the crate `mailbox`");
    Err(Error::new(ErrorKind::Unsupported, message).with_field("address"))
}

//! From an address to a mailbox.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::backend::Backend;
use crate::backends::memory::MemoryBackend;
use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;

/// Schemes of the grammar that no backend has yet, and which one will.
const SCHEMES: &[(&str, &str)] = &[
    ("dir", "directory"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+cluster", "redis"),
    ("redis+sentinel", "redis"),
    ("sqs", "sqs"),
    ("http", "remote"),
    ("https", "remote"),
    ("grpc", "remote"),
    ("grpcs", "remote"),
    ("oap", "remote"),
    ("oaps", "remote"),
];

pub(crate) async fn open<T, R>(address: &Address) -> Result<Mailbox<T, R>>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    if address.scheme() == "memory" {
        address.allow_options(&[])?;
        let backend = MemoryBackend::at(address.place()).ok_or_else(|| {
            let message = format!("{address}: there is no such place in this process");
            Error::new(ErrorKind::NotFound, message).with_field("address")
        })?;
        return Ok(Mailbox::new(backend.reached(), address.name().clone()));
    }
    if address.scheme() == "journal" {
        let backend = journal(address).await?;
        // The last one that is closed closes the journal.
        return Ok(Mailbox::new(backend, address.name().clone()).owning_its_backend());
    }
    let scheme = address.scheme();
    Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, backend)) => {
            let message =
                format!("{address}: {backend} mailboxes are planned; today: memory, journal");
            Error::new(ErrorKind::Unsupported, message)
        }
        None => Error::new(ErrorKind::InvalidParameter, format!("no such scheme: {scheme}:")),
    }
    .with_field("address"))
}

/// The journal that an address leads to, shared with everybody in this process who opens it so.
#[cfg(feature = "journal")]
async fn journal(address: &Address) -> Result<Arc<dyn Backend>> {
    use crate::backends::journal::{JournalBackend, JournalConfig};

    address.allow_options(&["durability", "ack"])?;
    if address.place().is_empty() {
        let message = format!("{address}: names no directory; write journal:path/name");
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
    }
    let mut config = JournalConfig::default();
    if let Some(durability) = address.options().get("durability") {
        config.durability = durability.parse()?;
    }
    if let Some(ack) = address.options().get("ack") {
        config.settle = ack.parse()?;
    }
    Ok(JournalBackend::shared(address.place().as_ref(), config).await?)
}

#[cfg(not(feature = "journal"))]
async fn journal(address: &Address) -> Result<Arc<dyn Backend>> {
    let message = format!("{address}: journals need the feature `journal` of the crate `mailbox`");
    Err(Error::new(ErrorKind::Unsupported, message).with_field("address"))
}

//! From an address to a mailbox.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::backends::memory::MemoryBackend;
use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;

/// Schemes of the grammar that no backend has yet, and which one will.
const SCHEMES: &[(&str, &str)] = &[
    ("journal", "journal"),
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
    let scheme = address.scheme();
    Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, backend)) => {
            let message = format!("{address}: {backend} mailboxes are planned; today: memory");
            Error::new(ErrorKind::Unsupported, message)
        }
        None => Error::new(ErrorKind::InvalidParameter, format!("no such scheme: {scheme}:")),
    }
    .with_field("address"))
}

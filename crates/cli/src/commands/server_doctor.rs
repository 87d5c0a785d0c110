//! `mailbox doctor redis://...`: whether servers keep what they are given, as the address says.

use mailbox::backends::redis::RedisBackend;
use mailbox::{Address, Backend, Error, ErrorKind, Result};
use serde::Serialize;

use crate::args::Doctor;
use crate::exit::Outcome;
use crate::output;
use crate::shown::time;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    servers: String,
    warnings: &'a [String],
}

/// The address, if servers are meant.
pub(super) fn meant(args: &Doctor) -> Result<Option<Address>> {
    let text = args.path.to_str().filter(|text| text.starts_with("redis"));
    let Some(text) = text.filter(|text| Address::has_scheme(text) && !args.path.exists()) else {
        return Ok(None);
    };
    if args.repair {
        let message = "there is nothing to repair on servers: what is damaged there becomes a dead \
                       letter when it is received";
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("repair"));
    }
    Address::parse(text).map(Some)
}

pub(super) async fn run(args: &Doctor, address: &Address) -> Result<Outcome> {
    let backend = RedisBackend::at(address).await?;
    let (servers, mut warnings) = (backend.address(address.name()), backend.warnings().to_vec());
    // Others may have given it one, whatever this address says.
    let expires_in = backend.stats(address.name()).await?.expires_in;
    if let Some(left) = expires_in {
        let left = time(left);
        warnings.push(format!("{} goes in {left} unless somebody uses it", address.name()));
    }
    if args.json {
        output::print_json(&Document { servers, warnings: &warnings })?;
    } else if warnings.is_empty() {
        output::print(&format!("{servers}: nothing to warn about\n"))?;
    } else {
        let lines: String = warnings.iter().map(|warning| format!("  {warning}\n")).collect();
        output::print(&format!("{servers}\n{lines}"))?;
    }
    backend.close().await?;
    Ok(Outcome::Done)
}

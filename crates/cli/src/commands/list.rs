//! `mailbox list`: the mailboxes of a place, page by page.

use mailbox::{Address, Error, ErrorKind, Name, Result};
use serde_json::json;

use crate::args::List;
use crate::exit::Outcome;
use crate::local;
use crate::output::{self, Heard};
use crate::place::{self, Making, Place};

/// Names in one page.
const PAGE: usize = 1_000;

pub(super) async fn run(args: &List) -> Result<Outcome> {
    let address = match &args.place {
        Some(place) => read(place)?,
        None => place::local_place()?,
    };
    let place = Place::open(address, Making::No).await?;
    let listed = pages(args, &place).await;
    let closed = place.backend.close().await;
    listed?;
    closed.map(|()| Outcome::Done)
}

/// Reads a place. Whoever names a mailbox there, as all other commands want it, is told that none
/// is wanted here.
fn read(text: &str) -> Result<Address> {
    let refuse =
        |message: String| Err(Error::new(ErrorKind::InvalidParameter, message).with_field("place"));
    if !text.contains(':') {
        return refuse(format!(
            "{text:?} is no place; write for example dir:./inbox, journal:data or \
             http://host:port, and nothing for the service of this machine"
        ));
    }
    let address = place::read_place(text)?;
    let (scheme, place) = (address.scheme(), address.place());
    // Where there is an @ there may be a password.
    match place.split_once('/') {
        Some((host, _)) if local::is_of_service(scheme) && !place.contains('@') => refuse(format!(
            "a place of a service has no name of a mailbox: write {scheme}://{host}"
        )),
        _ => Ok(address),
    }
}

async fn pages(args: &List, place: &Place) -> Result<()> {
    let mut after: Option<Name> = None;
    loop {
        let names = place.backend.list(after.as_ref(), PAGE).await?;
        for name in &names {
            let heard = if args.json {
                let address = place.address_of(name);
                output::print_json_line(&json!({ "name": name.as_str(), "address": address }))?
            } else {
                output::write(format!("{name}\n").as_bytes())?
            };
            if heard == Heard::Gone {
                return Ok(());
            }
        }
        // A page that does not go on behind the last one would go on forever.
        let is_last = names.len() < PAGE;
        match names.last() {
            Some(last) if !is_last && after.as_ref() < Some(last) => after = Some(last.clone()),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_is_no_place_and_the_place_is_said() {
        for (text, why) in [
            ("jobs", "journal:data or http://host:port, and nothing for the service of this"),
            ("http://127.0.0.1:7600/jobs", "no name of a mailbox: write http://127.0.0.1:7600"),
            ("oap://[::1]/jobs/?ca=x", "no name of a mailbox: write oap://[::1]"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{text}");
            assert!(error.message().contains(why), "{text}: {error}");
        }
        for text in ["http://127.0.0.1:7600", "grpc://h/", "dir:./inbox/jobs", "journal:data"] {
            assert!(read(text).is_ok(), "{text}");
        }
    }
}

//! From what was written on the command line to a mailbox that can be used. Invariant: what was
//! opened is closed again, whatever happened in between.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use mailbox::{Address, Backend, Error, ErrorKind, Name, Result, open_backend};

use crate::local;

/// Mailboxes among which one is looked for.
const LISTED: usize = 10_000;
/// Stands for the mailbox where only its place was named. It is never used.
const NOBODY: &str = "x";

/// A mailbox, and what keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) name: Name,
    pub(crate) address: Address,
}

/// Whether a directory that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Making {
    /// It is, by those who put something into it or wait for something in it.
    Yes,
    /// It is not: whoever only looks leaves no traces of a misspelt path.
    No,
}

/// Opens the mailbox at an address, does something with it, and closes it.
pub(crate) async fn at<T>(
    address: &str,
    making: Making,
    act: impl AsyncFnOnce(&Place) -> Result<T>,
) -> Result<T> {
    let place = Place::open(read(address)?, making).await?;
    let done = act(&place).await;
    let closed = place.backend.close().await;
    let done = done?;
    closed.map(|()| done)
}

impl Place {
    pub(crate) async fn open(address: Address, making: Making) -> Result<Self> {
        if address.is_path() {
            check_path(&address, making)?;
        }
        let backend: Arc<dyn Backend> = match address.scheme() {
            scheme if local::is_of_service(scheme) => local::open(&address).await?,
            _ => open_backend(&address).await?,
        };
        Ok(Self { backend, name: address.name().clone(), address })
    }

    /// Whether the mailbox is there, as far as that can be told without making it.
    pub(crate) fn is_there(&self) -> bool {
        // A folder that begins with a dot would be hidden: its mailbox is called by another name.
        let folder = match self.name.as_str().strip_prefix('.') {
            Some(rest) => format!("%2E{rest}"),
            None => self.name.to_string(),
        };
        self.address.scheme() != "dir" || directory(&self.address).join(folder).is_dir()
    }

    /// Tells people who look at a mailbox that there is none: it may be misspelt.
    pub(crate) async fn note_absence(&self) -> Result<()> {
        let is_there = match self.address.scheme() {
            "dir" => self.is_there(),
            // To look through all keys of a server would disturb others for a hint.
            scheme if scheme.starts_with("redis") => {
                let stats = self.backend.stats(&self.name).await?;
                stats.live() + stats.dead + stats.totals.sent > 0
            }
            _ => {
                let names = self.backend.list(None, LISTED).await?;
                names.len() == LISTED || names.contains(&self.name)
            }
        };
        if !is_there {
            crate::output::say(&format!("there is no mailbox {} yet", self.known_as()));
        }
        Ok(())
    }

    /// What others can find it by, without secrets.
    pub(crate) fn known_as(&self) -> String {
        self.address_of(&self.name)
    }

    /// Where a mailbox beside this one is. What was said about files of this machine is said again:
    /// whoever follows the address is here, too.
    pub(crate) fn address_of(&self, name: &Name) -> String {
        let mut address = self.backend.address(name);
        for option in ["ca", "cap_file"] {
            if let Some(path) = self.address.options().get(option) {
                let glue = if address.contains('?') { '&' } else { '?' };
                address = format!("{address}{glue}{option}={path}");
            }
        }
        address
    }
}

/// A reply address of a message of this backend, as it means the same elsewhere: a bare name is one
/// beside the mailbox that the message comes from.
pub(crate) fn seen_from_afar(backend: &dyn Backend, reply_to: &str) -> String {
    beside(reply_to).map_or_else(|| reply_to.to_owned(), |name| backend.address(&name))
}

/// The same for somebody on this machine, who has the files that the address of the place names.
pub(crate) fn seen_from_here(place: &Place, reply_to: &str) -> String {
    beside(reply_to).map_or_else(|| reply_to.to_owned(), |name| place.address_of(&name))
}

/// The mailbox that a bare name means.
fn beside(reply_to: &str) -> Option<Name> {
    if Address::has_scheme(reply_to) { None } else { reply_to.parse().ok() }
}

/// How addresses look of what is at a host: for one that has nothing behind its scheme that a name
/// could not have, too.
const FORMS: [(&str, &str); 11] = [
    ("http", "host:port/name"),
    ("https", "host:port/name"),
    ("grpc", "host:port/name"),
    ("grpcs", "host:port/name"),
    ("oap", "host:port/name"),
    ("oaps", "host:port/name"),
    ("redis", "host:port/name"),
    ("rediss", "host:port/name"),
    ("redis+cluster", "host:port,host:port/name"),
    ("redis+sentinel", "host:port,host:port/master/name"),
    ("sqs", "region/name"),
];

/// Reads an address. A bare name means the service of this machine.
pub(crate) fn read(text: &str) -> Result<Address> {
    let parsed = Address::parse(text);
    let is_address = Address::has_scheme(text)
        || parsed.as_ref().is_ok_and(|it| it.is_path() || it.scheme() == "memory");
    if !is_address {
        refuse_half(text)?;
    }
    if !is_address && Name::parse(text).is_ok() {
        return local::address(text);
    }
    let address = parsed.map_err(|error| {
        if is_address {
            return error;
        }
        let message = "that is no name of a mailbox, and no address; write for example jobs, or \
                       dir:./inbox/jobs";
        // What is wrong with it as a name says more, unless it looks like a path.
        let source = match Name::parse(text) {
            Err(bad) if !text.contains('/') => bad,
            _ => error,
        };
        Error::new(ErrorKind::InvalidParameter, message).with_field("address").with_source(source)
    })?;
    check_home(&address)?;
    Ok(address)
}

/// Refuses `oap:jobs` and `http:127.0.0.1`: the mailbox of that name would be at the service of
/// this machine, which nobody means who begins like that.
fn refuse_half(text: &str) -> Result<()> {
    let Some((start, _)) = text.split_once(':') else { return Ok(()) };
    let known = FORMS.iter().find(|(scheme, _)| scheme.eq_ignore_ascii_case(start));
    let Some((scheme, form)) = known else { return Ok(()) };
    if Address::has_scheme(&text.to_ascii_lowercase()) {
        // A whole one, but for its capitals: that is said of it.
        return Ok(());
    }
    // What is no name may have a password in it.
    let (shown, instead) = match Name::parse(text) {
        Ok(_) => (text, local::address(text).ok()),
        Err(_) => (start, None),
    };
    let instead = instead.map(|it| format!("; a mailbox of that name is {it}")).unwrap_or_default();
    let colon = if shown == start { ":…" } else { "" };
    let message =
        format!("{shown}{colon} looks like an address, which is {scheme}://{form}{instead}");
    Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"))
}

/// Refuses `dir:~/q`: no shell replaces a `~` there, and a folder of that name is not meant.
fn check_home(address: &Address) -> Result<()> {
    let (scheme, place) = (address.scheme(), address.place());
    if !address.is_path() || (place != "~" && !place.starts_with("~/")) {
        return Ok(());
    }
    let rest = place.trim_start_matches('~');
    let message = format!(
        "{scheme}:{place}: shells know ~ only where a word begins; write {scheme}:$HOME{rest}/..., \
         or {scheme}:./{place}/... for a folder that is called ~"
    );
    Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"))
}

/// The place of the service of this machine.
pub(crate) fn local_place() -> Result<Address> {
    local::address(NOBODY)
}

/// Reads an address without a name, such as `dir:inboxes`.
pub(crate) fn read_place(text: &str) -> Result<Address> {
    let (place, options) = match text.split_once('?') {
        Some((place, options)) => (place, format!("?{options}")),
        None => (text, String::new()),
    };
    let is_bare = place.ends_with(':') || place.ends_with('/');
    let address = format!("{place}{}{NOBODY}{options}", if is_bare { "" } else { "/" });
    if !text.contains(':') {
        let message =
            format!("{text:?} is no place; write for example dir:./inbox or journal:data");
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("place"));
    }
    let address = Address::parse(&address)?;
    check_home(&address)?;
    Ok(address)
}

fn directory(address: &Address) -> &Path {
    Path::new(if address.place().is_empty() { "." } else { address.place() })
}

/// Refuses a place that is no directory; and, unless it is to be made, one with nothing in it.
fn check_path(address: &Address, making: Making) -> Result<()> {
    let path = directory(address);
    let (scheme, shown) = (address.scheme(), path.display());
    let is_nothing = match fs::read_dir(path) {
        // An empty directory is a place for inboxes, but no journal.
        Ok(mut entries) => scheme == "journal" && entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let message = format!("{scheme}:{shown}: there is a file in the way, no directory");
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        }
        // Whatever else is wrong with it, the backend says it better.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if making == Making::Yes || !is_nothing {
        return Ok(());
    }
    let message = format!("{scheme}:{shown}: nothing there; `mailbox send` makes it");
    Err(Error::new(ErrorKind::NotFound, message).with_field("address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_without_its_name() {
        for (text, scheme, place) in [
            ("dir:inboxes", "dir", "inboxes"),
            ("dir:./inboxes/", "dir", "./inboxes"),
            ("dir:.", "dir", "."),
            ("dir:", "dir", ""),
            ("dir:/", "dir", "/"),
            ("dir:///var/inboxes", "dir", "/var/inboxes"),
            ("journal:data?durability=fsync", "journal", "data"),
            ("memory:", "memory", ""),
            ("memory://", "memory", ""),
            ("redis://h:6379", "redis", "h:6379"),
        ] {
            let address = read_place(text).unwrap();
            assert_eq!((address.scheme(), address.place()), (scheme, place), "{text}");
        }
        assert!(read_place("inboxes").is_err());
    }

    /// They were mailboxes of the service of this machine, and nobody was told.
    #[test]
    fn a_name_that_begins_like_an_address_is_refused_with_the_form_of_one() {
        for (text, form) in [
            ("oap:jobs", "oap://host:port/name; a mailbox of that name is http"),
            ("http:jobs", "http://host:port/name; "),
            ("grpcs:jobs", "grpcs://host:port/name; "),
            ("http:127.0.0.1", "http://host:port/name; "),
            ("oap:127.0.0.1:17601", "oap://host:port/name; "),
            ("redis:x", "redis://host:port/name; "),
            ("sqs:x", "sqs://region/name; "),
            ("HTTP:jobs", "http://host:port/name; "),
            ("redis+cluster:x", "redis+cluster://host:port,host:port/name"),
            ("redis+sentinel:x", "redis+sentinel://host:port,host:port/master/name"),
            ("redis:u:hunter2@h", "redis://host:port/name"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{text}");
            let expected = format!(" looks like an address, which is {form}");
            assert!(error.message().contains(&expected), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
            let is_name = form.contains(';');
            assert!(!is_name || error.message().starts_with(text), "{error}");
        }
        let error = read("GRPC://127.0.0.1:17600/jobs").unwrap_err();
        assert!(format!("{error:#}").contains("small letters: grpc:"), "{error:#}");
        for name in ["https-jobs", "a:http:b", "redisx:1"] {
            assert_eq!(read(name).unwrap().name().as_str(), name);
        }
    }

    #[test]
    fn a_bare_name_is_told_apart_from_an_address() {
        for name in ["jobs", "user:42:inbox"] {
            let address = read(name).unwrap();
            assert!(address.scheme().starts_with("http"), "{address}");
            assert_eq!(address.name().as_str(), name);
        }
        assert_eq!(read("a/b").unwrap_err().kind(), ErrorKind::InvalidParameter);
        assert_eq!(read("").unwrap_err().kind(), ErrorKind::InvalidParameter);
        assert_eq!(read("dir:./~/jobs").unwrap().place(), "./~");
        for text in ["dir:~/jobs", "journal:~/a/jobs"] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter);
            assert!(error.message().contains("$HOME"), "{error}");
        }
        assert!(read_place("dir:~").is_err());
        for text in ["dir:jobs", "memory:jobs", "memory://jobs", "dir:a/jobs", "http://h/jobs"] {
            assert_eq!(read(text).unwrap().name().as_str(), "jobs", "{text}");
        }
    }
}

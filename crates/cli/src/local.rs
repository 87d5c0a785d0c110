//! The service of this machine: where it is, and what allows using it. Invariant: the operator's
//! capability goes to where the data directory says the service is, and nowhere else: whoever
//! listens elsewhere on this machine may be anybody.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mailbox::backends::remote::{RemoteBackend, RemoteConfig};
use mailbox::{Address, Error, ErrorKind, Result};
use mailbox_server::auth::OPERATOR_FILE;
use mailbox_server::settings::data_directory;
use tokio::net::TcpStream;
use zeroize::Zeroizing;

/// The file in the data directory that says where the service is.
pub(crate) const URL_FILE: &str = "url";
/// Where it is if nobody says.
const DEFAULT_URL: &str = "http://127.0.0.1:7600";
/// Largest of the files that are read here.
const MOST: u64 = 16 * 1024;
/// How long a service on this machine may take to accept a connection.
const PROBE: Duration = Duration::from_secs(2);

/// What `--data` said, for the whole process.
static SAID: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Says which data directory is meant.
pub(crate) fn use_data(said: Option<PathBuf>) {
    // The second time nothing is said: there is one command line.
    let _ = SAID.set(said);
}

/// What `--data` said.
pub(crate) fn said_data() -> Option<PathBuf> {
    SAID.get().cloned().flatten()
}

/// The data directory of the service, if there can be one.
pub(crate) fn data() -> Option<PathBuf> {
    said_data().or_else(usual_data)
}

/// The data directory that a command finds without being told where it is.
pub(crate) fn usual_data() -> Option<PathBuf> {
    variable("MAILBOX_DATA").map(Into::into).or_else(|| data_directory(variable))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where the service is: `MAILBOX_URL`, what the data directory says, or the default.
pub(crate) fn url() -> Result<String> {
    if let Some(url) = variable("MAILBOX_URL") {
        if !is_of_service(url.split("://").next().unwrap_or_default()) {
            let message = "MAILBOX_URL: write http://host:port, or https, grpc, grpcs, oap, oaps";
            return Err(Error::new(ErrorKind::InvalidParameter, message));
        }
        return Ok(url);
    }
    Ok(written_urls()?.into_iter().next().unwrap_or_else(|| DEFAULT_URL.to_owned()))
}

/// Where a service with this data directory has said that it is: for HTTP first, then for OAP/1.
fn written_urls() -> Result<Vec<String>> {
    let Some(path) = data().map(|data| data.join(URL_FILE)) else { return Ok(Vec::new()) };
    let Some(text) = read(&path)? else { return Ok(Vec::new()) };
    let is_url = |url: &&str| is_of_service(url.split("://").next().unwrap_or_default());
    Ok(text.lines().map(str::trim).filter(is_url).map(str::to_owned).collect())
}

/// Whether addresses that begin so lead to a service.
pub(crate) fn is_of_service(scheme: &str) -> bool {
    matches!(scheme, "http" | "https" | "grpc" | "grpcs" | "oap" | "oaps")
}

/// The same place, as a service has written it down: with its port, and gRPC is where HTTP is.
fn as_written(address: &Address, port: u16) -> String {
    let (scheme, place) = (address.scheme(), address.place());
    let scheme = match scheme.strip_prefix("grpc") {
        Some(rest) => format!("http{rest}"),
        None => scheme.to_owned(),
    };
    if names_port(place) {
        format!("{scheme}://{place}")
    } else {
        format!("{scheme}://{place}:{port}")
    }
}

fn names_port(place: &str) -> bool {
    place.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'))
}

/// The address of a mailbox of the service.
pub(crate) fn address(name: &str) -> Result<Address> {
    let url = url()?;
    let (base, options) = match url.split_once('?') {
        Some((base, options)) => (base, format!("?{options}")),
        None => (url.as_str(), String::new()),
    };
    Address::parse(&format!("{}/{name}{options}", base.trim_end_matches('/')))
}

/// Opens the service that an address leads to, with the capability that is for it.
pub(crate) async fn open(address: &Address) -> Result<Arc<RemoteBackend>> {
    // Before anybody is asked: what is wrong with an address is nothing that is wrong there.
    let (host, port) = address.service()?.ok_or_else(|| {
        let message = format!("{}: is no service", address.scheme());
        Error::new(ErrorKind::InvalidParameter, message).with_field("address")
    })?;
    let base = format!("{}://{}", address.scheme(), address.place());
    if is_loopback(host) {
        let at = if names_port(address.place()) { String::new() } else { format!(", port {port}") };
        probe(host, port, &format!("{base}{at}")).await?;
    }
    let is_named = address.options().contains_key("cap_file") || variable("MAILBOX_CAP").is_some();
    let written = if is_named { Vec::new() } else { written_urls()? };
    let own = as_written(address, port);
    if is_among(&written, &own) {
        address.allow_options(&["ca"])?;
        if let Some(operator) = operator()? {
            // The file, not what is in it: `cap rotate` puts another one there.
            let mut config = RemoteConfig::default().with_capability_file(operator);
            config.ca = address.options().get("ca").map(Into::into);
            return RemoteBackend::open_with(&base, config).await;
        }
    }
    let opened = RemoteBackend::at(address).await;
    opened.map_err(
        |error| {
            if is_named { error } else { without_capability(error, &base, &own, &written) }
        },
    )
}

fn is_among(written: &[String], own: &str) -> bool {
    written.iter().any(|url| url.trim_end_matches('/') == own)
}

/// Opens the service of this machine, or that at `MAILBOX_URL`.
pub(crate) async fn service() -> Result<Arc<RemoteBackend>> {
    // Any name will do.
    open(&address("x")?).await
}

/// Where the operator's capability is, if it is there.
fn operator() -> Result<Option<PathBuf>> {
    let Some(path) = data().map(|data| data.join(OPERATOR_FILE)) else { return Ok(None) };
    let text = read(&path)?;
    Ok(text.filter(|text| !text.trim().is_empty()).map(|_| path))
}

/// What is in a small file; nothing if it is not there.
fn read(path: &Path) -> Result<Option<Zeroizing<String>>> {
    let refuse = |error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::Forbidden,
            _ => ErrorKind::InvalidParameter,
        };
        Error::new(kind, format!("cannot read {}", path.display())).with_source(error)
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refuse(error)),
    };
    let mut text = Zeroizing::new(String::with_capacity(MOST as usize));
    file.take(MOST).read_to_string(&mut text).map_err(refuse)?;
    Ok(Some(text))
}

/// Whether only this machine is there.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Finds out at once that nobody listens, and says what to do about it.
async fn probe(host: &str, port: u16, shown: &str) -> Result<()> {
    let connected = tokio::time::timeout(PROBE, TcpStream::connect((host, port))).await;
    let why = match connected {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer".to_owned(),
    };
    let message = format!("there is no service at {shown} ({why}); `mailbox serve` starts one");
    Err(Error::new(ErrorKind::Connection, message))
}

/// Says where a capability would have been looked for.
fn without_capability(error: Error, base: &str, own: &str, written: &[String]) -> Error {
    if error.kind() != ErrorKind::Unauthorized {
        return error;
    }
    // A name may lead anywhere, also to somebody else on this machine; but who writes this means
    // the service that is here.
    let meant = own.replacen("://localhost:", "://127.0.0.1:", 1);
    let why = match written {
        [] => String::new(),
        urls if meant != own && is_among(urls, &meant) => {
            " (write 127.0.0.1, and that of the operator is used)".to_owned()
        }
        urls => format!("; that of the operator is for {} alone", urls.join(" and ")),
    };
    let message = format!(
        "there is no capability for {base}{why}: MAILBOX_CAP takes one, `mailbox cap mint` \
         makes one"
    );
    Error::new(ErrorKind::Unauthorized, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "0.0.0.0", "10.0.0.1", "localhost.example", "::", "127.0.0.1.example"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
    #[test]
    fn a_place_is_compared_with_its_port_and_grpc_is_where_http_is() {
        for (text, written) in [
            ("http://127.0.0.1:7600/jobs", "http://127.0.0.1:7600"),
            ("grpc://127.0.0.1/jobs", "http://127.0.0.1:7600"),
            ("grpcs://[::1]/jobs", "https://[::1]:7600"),
            ("oap://127.0.0.1/jobs", "oap://127.0.0.1:7601"),
            ("http://127.0.0.1/jobs", "http://127.0.0.1:80"),
        ] {
            let address = Address::parse(text).unwrap();
            let (_, port) = address.service().unwrap().unwrap();
            assert_eq!(as_written(&address, port), written, "{text}");
        }
    }
}

//! What a service says when it is ready: to people, and to commands that look for it. Invariant: a
//! capability is shown only where there is no file to read it from.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mailbox::{Error, ErrorKind, Result};
use mailbox_server::auth::OPERATOR_FILE;
use mailbox_server::settings::{Key, Settings};
use mailbox_server::{Auth, Listener};
use serde_json::json;
use zeroize::Zeroizing;

use crate::{local, output};

/// What has been said, so that it can be taken back.
#[derive(Debug)]
pub(super) struct Ready {
    /// The file that says where the service is, and what it says.
    written: Option<(PathBuf, String)>,
}

impl Ready {
    pub(super) fn announce(
        settings: &Settings,
        auth: &Auth,
        listeners: &[Listener],
    ) -> Result<Self> {
        let address =
            listeners.iter().filter(|it| !it.is_oap()).find_map(Listener::address).ok_or_else(
                || Error::new(ErrorKind::Internal, "the service does not know where it listens"),
            )?;
        let url = base_url(address, settings.tls().is_some());
        let urls = match oap(settings, listeners) {
            Some(oap) => format!("{url}\n{oap}"),
            None => url.clone(),
        };
        let data = settings.data().map(|data| std::path::absolute(data).unwrap_or(data.into()));
        let written = data.as_deref().map(|data| write_urls(data, &urls)).transpose()?;
        // Without a data directory there is no other way to get at it.
        let operator = match &data {
            Some(_) => None,
            None => Some(Zeroizing::new(auth.operator()?.encode())),
        };
        let operator = operator.as_ref().map(|it| it.as_str());
        if settings.logs_json() {
            let data = data.as_ref().map(|data| data.display().to_string());
            let oap = oap(settings, listeners);
            let ready =
                json!({ "url": url, "oap": oap, "data": data, "operator_capability": operator });
            output::say(&json!({ "ready": ready }).to_string());
        } else {
            say(settings, &url, data.as_deref(), operator, listeners);
        }
        Ok(Self { written })
    }

    /// Takes back where the service is, unless another has said something else since.
    pub(super) fn withdraw(&self) {
        if let Some((path, url)) = &self.written
            && fs::read_to_string(path).is_ok_and(|text| text.trim() == url)
        {
            // Whoever looks there finds that nobody answers.
            let _ = fs::remove_file(path);
        }
    }
}

/// Where it is found by OAP/1.
fn oap(settings: &Settings, listeners: &[Listener]) -> Option<String> {
    let address = listeners.iter().filter(|it| it.is_oap()).find_map(Listener::address)?;
    let scheme = if settings.tls().is_some() { "oaps" } else { "oap" };
    Some(format!("{scheme}://{}", here(address)))
}

/// Where commands on this machine find the service.
fn base_url(address: SocketAddr, is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{}", here(address))
}

/// An address as it can be reached from this machine.
fn here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn write_urls(data: &Path, url: &str) -> Result<(PathBuf, String)> {
    let (path, new) = (data.join(local::URL_FILE), data.join(format!("{}.new", local::URL_FILE)));
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{url}")?;
        fs::rename(&new, &path)
    };
    write().map_err(|error| {
        Error::new(ErrorKind::Internal, format!("cannot write {}", path.display()))
            .with_source(error)
    })?;
    Ok((path, url.to_owned()))
}

fn say(
    settings: &Settings,
    url: &str,
    data: Option<&Path>,
    operator: Option<&str>,
    listeners: &[Listener],
) {
    let mut text = format!("mailbox is ready at {url}\n");
    let mut line = |name: &str, words: &str| text.push_str(&format!("  {name:<6} {words}\n"));
    if let Some(path) = listeners.iter().find_map(Listener::path) {
        line("unix", &path.display().to_string());
    }
    // The same port has both.
    line("grpc", &url.replacen("http", "grpc", 1));
    if let Some(url) = oap(settings, listeners) {
        line("oap", &url);
    }
    line("store", &settings.shown()[Key::Store as usize].value);
    let bearer = match data {
        Some(data) => {
            line("data", &data.display().to_string());
            if local::usual_data().as_deref() != Some(data) {
                line("try", &format!("export MAILBOX_DATA={}", quoted(data)));
            }
            format!("$(cat {})", quoted(&data.join(OPERATOR_FILE)))
        }
        None => {
            let operator = operator.unwrap_or_default();
            line("try", &format!("export MAILBOX_URL={url} MAILBOX_CAP={operator}"));
            "$MAILBOX_CAP".to_owned()
        }
    };
    line("try", &format!("{} send jobs hello", program()));
    line("try", &format!("curl -H \"Authorization: Bearer {bearer}\" {url}/v1/topics"));
    output::say(text.trim_end());
}

/// What to write to run this program: its name, if a shell finds it by that.
fn program() -> String {
    const NAME: &str = "mailbox";
    let Ok(own) = std::env::current_exe() else { return NAME.to_owned() };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|path| path.join(NAME)).find(|it| it.is_file());
    let is_own = |found: PathBuf| found.canonicalize().is_ok_and(|it| it == own);
    if found.is_some_and(is_own) {
        return NAME.to_owned();
    }
    let here = std::env::current_dir().unwrap_or_default();
    quoted(own.strip_prefix(here).unwrap_or(&own))
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_find_a_service_that_listens_everywhere() {
        for (address, url) in [
            ("0.0.0.0:1", "http://127.0.0.1:1"),
            ("[::]:1", "http://[::1]:1"),
            ("10.0.0.1:1", "http://10.0.0.1:1"),
        ] {
            assert_eq!(base_url(address.parse().unwrap(), false), url);
        }
        assert_eq!(base_url("127.0.0.1:1".parse().unwrap(), true), "https://127.0.0.1:1");
    }

    #[test]
    fn a_path_is_one_word_to_a_shell() {
        assert_eq!(quoted(Path::new("/var/lib/mailbox")), "/var/lib/mailbox");
        assert_eq!(quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }
}

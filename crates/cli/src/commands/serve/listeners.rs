//! Where the service listens.

use std::io;
use std::sync::Arc;

use mailbox::{Error, ErrorKind, Result};
use mailbox_server::Listener;
use mailbox_server::settings::{Certificates, Key, Settings};
use rustls::ServerConfig;
use tokio::net::{TcpListener, lookup_host};

/// Listens everywhere the settings say. The first is a TCP port.
pub(super) async fn bind(
    settings: &Settings,
    certificates: Option<&Arc<Certificates>>,
) -> Result<Vec<Listener>> {
    let tls = certificates.map(Certificates::http).transpose()?;
    let mut listeners = Vec::new();
    for address in settings.listen() {
        listeners.push(on(bind_tcp(settings, address, Key::Listen).await?, tls.as_ref()));
    }
    let tls = certificates.map(Certificates::oap).transpose()?;
    for address in settings.oap() {
        listeners.push(on(bind_oap(settings, address).await?, tls.as_ref()).for_oap());
    }
    if let Some(path) = settings.unix() {
        let bound = Listener::unix(path).await;
        listeners.push(bound.map_err(|error| {
            let path = path.display().to_string();
            if error.kind() != io::ErrorKind::AddrInUse {
                return failed(&path, "--unix", error);
            }
            let message = format!(
                "cannot listen on {path}: somebody listens there, or it is no socket; --unix takes \
                 another path"
            );
            Error::new(ErrorKind::Connection, message).with_source(error)
        })?);
    }
    Ok(listeners)
}

fn on(listener: TcpListener, tls: Option<&Arc<ServerConfig>>) -> Listener {
    match tls {
        Some(tls) => Listener::tls(listener, Arc::clone(tls)),
        None => Listener::tcp(listener),
    }
}

/// Where nobody has said, a port that is taken is no reason not to start: another one is as good,
/// and is shown.
async fn bind_oap(settings: &Settings, address: &str) -> Result<TcpListener> {
    let bound = bind_tcp(settings, address, Key::Oap).await;
    if settings.is_oap_said() {
        return bound;
    }
    match bound {
        Err(error) if error.kind() == ErrorKind::Connection => {
            let other = bind_tcp(settings, "127.0.0.1:0", Key::Oap).await?;
            if let Ok(bound) = other.local_addr() {
                tracing::warn!("{address} is taken: OAP/1 listens on {bound}");
            }
            Ok(other)
        }
        bound => bound,
    }
}

async fn bind_tcp(settings: &Settings, address: &str, key: Key) -> Result<TcpListener> {
    let failed = |error| failed(address, &key.setting().flag(), error);
    let found: Vec<_> = lookup_host(address).await.map_err(failed)?.collect();
    for address in &found {
        settings.check_exposure(key, *address)?;
    }
    TcpListener::bind(&*found).await.map_err(failed)
}

fn failed(address: &str, flag: &str, error: io::Error) -> Error {
    let taken = format!("; does a service run already? {flag} takes another address");
    let (kind, hint) = match error.kind() {
        io::ErrorKind::AddrInUse => (ErrorKind::Connection, taken.as_str()),
        io::ErrorKind::PermissionDenied => (ErrorKind::Forbidden, ""),
        _ => (ErrorKind::InvalidParameter, ""),
    };
    Error::new(kind, format!("cannot listen on {address}{hint}")).with_source(error)
}

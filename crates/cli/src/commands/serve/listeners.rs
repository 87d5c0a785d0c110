//! Where the service listens.

use std::io;
use std::sync::Arc;

use mailbox::{Error, ErrorKind, Result};
use mailbox_server::Listener;
use mailbox_server::settings::{Certificates, Settings};
use tokio::net::{TcpListener, lookup_host};

/// Listens everywhere the settings say. The first is a TCP port.
pub(super) async fn bind(
    settings: &Settings,
    certificates: Option<&Arc<Certificates>>,
) -> Result<Vec<Listener>> {
    let tls = certificates.map(Certificates::server).transpose()?;
    let mut listeners = Vec::new();
    for address in settings.listen() {
        let listener = bind_tcp(settings, address).await?;
        listeners.push(match &tls {
            Some(tls) => Listener::tls(listener, Arc::clone(tls)),
            None => Listener::tcp(listener),
        });
    }
    if let Some(path) = settings.unix() {
        let bound = Listener::unix(path).await;
        listeners.push(bound.map_err(|error| {
            let path = path.display().to_string();
            if error.kind() != io::ErrorKind::AddrInUse {
                return failed(&path, error);
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

async fn bind_tcp(settings: &Settings, address: &str) -> Result<TcpListener> {
    let found: Vec<_> =
        lookup_host(address).await.map_err(|error| failed(address, error))?.collect();
    for address in &found {
        settings.check_exposure(*address)?;
    }
    TcpListener::bind(&*found).await.map_err(|error| failed(address, error))
}

fn failed(address: &str, error: io::Error) -> Error {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::AddrInUse => {
            (ErrorKind::Connection, "; does a service run already? --listen takes another address")
        }
        io::ErrorKind::PermissionDenied => (ErrorKind::Forbidden, ""),
        _ => (ErrorKind::InvalidParameter, ""),
    };
    Error::new(kind, format!("cannot listen on {address}{hint}")).with_source(error)
}

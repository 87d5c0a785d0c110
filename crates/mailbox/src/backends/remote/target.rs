//! Where a service is, and how to get a connection to it.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::config::RemoteConfig;
use crate::error::{Error, ErrorKind, Result};

/// A service.
pub(super) struct Target {
    /// `host:port`, as it is said in `Host` and in addresses.
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Target {
    /// Reads `http://host:port` in two parts.
    pub(super) fn read(scheme: &str, place: &str, config: &RemoteConfig) -> Result<Self> {
        let refuse = |why: &str| {
            let message = format!("{scheme}://{place:.200} {why}");
            Error::new(ErrorKind::InvalidParameter, message).with_field("address")
        };
        if place.contains(['@', '/']) {
            // Without the place: it may have a password in it.
            let message = "an address of a service is http://host:port/name, without user or path";
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        }
        let is_tls = scheme == "https";
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| refuse("has no port that is a number"))?)
            }
            _ => (place, if is_tls { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(refuse("names no host"));
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = if is_tls { Some(connector(&bare, config)?) } else { None };
        Ok(Self { authority: place.to_owned(), host: bare, port, tls })
    }

    /// What an address begins with.
    pub(super) fn base(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.base())
    }
}

fn connector(host: &str, config: &RemoteConfig) -> Result<(TlsConnector, ServerName<'static>)> {
    let refuse =
        |message: String, field| Error::new(ErrorKind::InvalidParameter, message).with_field(field);
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(path) => {
            let shown = path.display();
            let certificates = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| refuse(format!("{shown}: cannot be read: {error}"), "ca"))?;
            let (good, _) = roots.add_parsable_certificates(certificates);
            if good == 0 {
                return Err(refuse(format!("{shown}: has no certificate in PEM"), "ca"));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, "no TLS").with_source(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| refuse(format!("{host:.200} is no name of a server"), "address"))?;
    Ok((TlsConnector::from(Arc::new(client)), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_host_with_or_without_a_port() {
        let config = RemoteConfig::default();
        for (place, host, port) in [
            ("127.0.0.1:7600", "127.0.0.1", 7600),
            ("localhost", "localhost", 80),
            ("[::1]:7600", "::1", 7600),
            ("[::1]", "::1", 80),
        ] {
            let target = Target::read("http", place, &config).unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port), "{place}");
            assert_eq!(target.base(), format!("http://{place}"));
        }
        for place in ["", "host:", "host:x", "user:secret@host:1", "host/v1"] {
            let error = Target::read("http", place, &config).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

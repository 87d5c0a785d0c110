//! Where a service is, and how to get a connection to it.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::config::RemoteConfig;
use crate::address::ServicePlace;
use crate::error::{Error, ErrorKind, Result};

/// A service.
pub(super) struct Target {
    /// Which protocol.
    pub(super) scheme: &'static str,
    /// `host:port`, as it is said in `Host` and in addresses.
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Target {
    /// Reads `http://host:port` in two parts.
    pub(super) fn read(scheme: &str, place: &str, config: &RemoteConfig) -> Result<Self> {
        let read = ServicePlace::read(scheme, place)?;
        read.check_ca(config.ca.is_some())?;
        let ServicePlace { scheme, is_tls, host, port } = read;
        let bare = host.to_owned();
        // Everybody knows the ports of HTTP, and `Host` leaves them out; others are said.
        let is_said = place.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let is_said = is_said || scheme.starts_with("http");
        let authority = if is_said { place.to_owned() } else { format!("{place}:{port}") };
        let protocols: &[&str] = if scheme == "grpcs" { &["h2"] } else { &[] };
        let tls = if is_tls { Some(connector(&bare, protocols, config)?) } else { None };
        Ok(Self { scheme, authority, host: bare, port, tls })
    }

    /// What an address begins with.
    pub(super) fn base(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.base())
    }
}

/// What makes connections safe, and says which of these protocols is spoken on them.
fn connector(
    host: &str,
    protocols: &[&str],
    config: &RemoteConfig,
) -> Result<(TlsConnector, ServerName<'static>)> {
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
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, "no TLS").with_source(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
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
        for (scheme, place, base) in [
            ("grpc", "host", "grpc://host:7600"),
            ("oap", "[::1]", "oap://[::1]:7601"),
            ("oap", "host:7601", "oap://host:7601"),
            ("oap", "host:07601", "oap://host:07601"),
        ] {
            assert_eq!(Target::read(scheme, place, &config).unwrap().base(), base);
        }
        let ca = RemoteConfig { ca: Some("ca.pem".into()), ..RemoteConfig::default() };
        let error = Target::read("grpc", "host", &ca).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidParameter, Some("ca")));
        for place in ["", "host:", "host:x", "user:secret@host:1", "host/v1"] {
            let error = Target::read("http", place, &config).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

//! The certificates of the service. They can be read again while it runs: connections that are made
//! from then on get the new ones.

use std::path::Path;
use std::sync::Arc;

use mailbox::{Error, ErrorKind, Result};
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Most certificates in one file.
const CHAIN: usize = 32;

/// Certificates that can be replaced.
#[derive(Debug)]
pub struct Certificates(RwLock<Arc<CertifiedKey>>);

impl Certificates {
    /// Reads certificates and their private key, both PEM.
    ///
    /// # Errors
    /// `InvalidParameter` if they cannot be read or do not fit together.
    pub fn read(cert: &Path, key: &Path) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(RwLock::new(certified(cert, key)?))))
    }

    /// Reads others. If that fails, everything stays as it was.
    ///
    /// # Errors
    /// As [`Certificates::read`].
    pub fn reload(&self, cert: &Path, key: &Path) -> Result<()> {
        *self.0.write() = certified(cert, key)?;
        Ok(())
    }

    /// TLS with these certificates, for HTTP of either version.
    ///
    /// # Errors
    /// None in practice.
    pub fn http(self: &Arc<Self>) -> Result<Arc<ServerConfig>> {
        self.server(&["h2", "http/1.1"])
    }

    /// The same for OAP/1, which has no name in TLS: whatever a client offers is ignored.
    ///
    /// # Errors
    /// None in practice.
    pub fn oap(self: &Arc<Self>) -> Result<Arc<ServerConfig>> {
        self.server(&[])
    }

    fn server(self: &Arc<Self>, protocols: &[&str]) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| {
            Error::new(ErrorKind::Internal, "TLS cannot be set up").with_source(error)
        })?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

fn certified(cert: &Path, key: &Path) -> Result<Arc<CertifiedKey>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(cert)
        .map_err(|error| refuse(cert, &error))?
        .take(CHAIN)
        .collect();
    let chain = chain.map_err(|error| refuse(cert, &error))?;
    if chain.is_empty() {
        return Err(refuse(cert, &"there is no certificate in it"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(key, &error))?;
    let provider = ring::default_provider();
    let certified = CertifiedKey::from_der(chain, private, &provider);
    certified.map(Arc::new).map_err(|error| refuse(key, &error))
}

fn refuse(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidParameter, format!("TLS: {}: {why}", path.display()))
}

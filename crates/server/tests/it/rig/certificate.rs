//! A certificate for this machine, made for the occasion.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;

use mailbox_server::settings::Certificates;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate, and who trusts it.
pub(crate) struct Certificate(tempfile::TempDir);

impl Certificate {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=service"])
            .args(["-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(folder)
    }

    /// The service's side, for OAP/1.
    pub(super) fn server(&self) -> Arc<ServerConfig> {
        let file = |name| self.0.path().join(name);
        Certificates::read(&file("cert.pem"), &file("key.pem")).unwrap().oap().unwrap()
    }

    /// The side of those who trust it.
    pub(super) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.0.path().join("cert.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Whose certificate it is.
pub(super) fn here() -> ServerName<'static> {
    ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into())
}

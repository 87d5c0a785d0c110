//! A certificate for this machine, made for the occasion: for tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate, and who trusts it.
pub(super) struct Certificate(tempfile::TempDir);

impl Certificate {
    pub(super) fn new() -> Self {
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

    /// What to trust.
    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("cert.pem")
    }

    /// The service's side of connections, on which one of these protocols is spoken.
    pub(super) fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        let chain = CertificateDer::pem_file_iter(self.path()).unwrap();
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(self.0.path().join("key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

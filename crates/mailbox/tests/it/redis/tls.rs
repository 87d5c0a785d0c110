//! Servers behind TLS, with certificates made for the occasion.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mailbox::{ErrorKind, Mailbox, ReceiveOptions};
use mailbox_redis_servers::Node;
use tokio::time::timeout;

use super::stage::expect;
use super::{PATIENCE, until};

/// How long it may take until somebody is told that a server is not to be trusted.
const TOLD: Duration = Duration::from_secs(6);
const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// A server with a plain port and one behind TLS.
struct Safe {
    node: Node,
    port: u16,
    folder: tempfile::TempDir,
}

impl Safe {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        make_authority(at, "ca");
        make_authority(at, "stranger");
        openssl(at, &format!("req {KEY} -keyout server.key -out server.csr -subj /CN=localhost"));
        fs::write(at.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        let sign = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2";
        openssl(at, &format!("{sign} -out server.pem -extfile names"));
        let [certificate, key, ca] =
            ["server.pem", "server.key", "ca.pem"].map(|file| path(at, file));
        let mut tries = 0;
        loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let node = Node::start(&[
                ("tls-port", &port.to_string()),
                ("tls-cert-file", &certificate),
                ("tls-key-file", &key),
                ("tls-ca-cert-file", &ca),
                ("tls-auth-clients", "no"),
            ]);
            tries += 1;
            match node {
                Ok(node) => return Self { node, port, folder },
                // Somebody else may have taken the port meanwhile.
                Err(error) if tries < 5 => drop(error),
                Err(error) => panic!("redis-server has to be able to do TLS: {error}"),
            }
        }
    }

    fn file(&self, name: &str) -> String {
        path(self.folder.path(), name)
    }

    async fn open(&self, address: &str) -> mailbox::Result<Mailbox<String>> {
        let opened = timeout(TOLD, Mailbox::open(address)).await;
        opened.expect("it is told in time")
    }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).into_os_string().into_string().unwrap()
}

/// Somebody who signs certificates.
fn make_authority(folder: &Path, name: &str) {
    let subject = format!("-subj /CN=mailbox-{name} -addext basicConstraints=critical,CA:TRUE");
    openssl(
        folder,
        &format!("req -x509 {KEY} -days 2 -keyout {name}.key -out {name}.pem {subject}"),
    );
}

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let output = output.expect("there is an openssl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {said}");
}

#[tokio::test]
async fn a_mailbox_behind_tls_works_with_the_right_authority() {
    let safe = Safe::start();
    let (port, ca) = (safe.port, safe.file("ca.pem"));
    for host in ["127.0.0.1", "localhost"] {
        let jobs = safe.open(&format!("rediss://{host}:{port}/jobs?ca={ca}")).await.unwrap();
        jobs.send("sent through TLS".to_owned()).await.unwrap();
        let message = jobs.receive().await.unwrap().remove(0);
        assert_eq!(message.body().unwrap(), "sent through TLS");
        message.acknowledge().await.unwrap();
        // What servers tell of changes comes through TLS too: another one sends, without.
        let plain = format!("redis://{}/jobs", safe.node.address());
        let plain = safe.open(&plain).await.unwrap();
        let options = ReceiveOptions::new().with_wait(PATIENCE);
        let (received, ()) = tokio::join!(jobs.receive_with(options), async {
            until("it waits", || async { jobs.stats().await.unwrap().waiters == 1 }).await;
            plain.send("sent without".to_owned()).await.unwrap();
        });
        let message = received.unwrap().remove(0);
        assert_eq!(message.body().unwrap(), "sent without");
        message.acknowledge().await.unwrap();
        assert_eq!(plain.approximate_count().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_server_that_is_not_to_be_trusted_is_refused() {
    let safe = Safe::start();
    let (port, ca) = (safe.port, safe.file("ca.pem"));
    let stranger = safe.file("stranger.pem");
    let at = format!("127.0.0.1:{port}");
    for options in [String::new(), format!("?ca={stranger}")] {
        let error = safe.open(&format!("rediss://:sesame@{at}/jobs{options}")).await.unwrap_err();
        expect(&error, ErrorKind::Connection, &at, &["sesame"]);
        assert!(format!("{error:#}").to_lowercase().contains("certificate"), "{error:#}");
    }
    // A name that is not in its certificate.
    let error = safe.open(&format!("rediss://127.0.0.2:{port}/jobs?ca={ca}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:#}");
    // Without TLS to where TLS is, and the other way round.
    let error = safe.open(&format!("redis://:sesame@{at}/jobs")).await.unwrap_err();
    expect(&error, ErrorKind::Connection, &at, &["sesame"]);
    let plain = safe.node.address();
    let error = safe.open(&format!("rediss://:sesame@{plain}/jobs?ca={ca}")).await.unwrap_err();
    expect(&error, ErrorKind::Connection, &plain, &["sesame"]);
    // And it is there all the same.
    safe.open(&format!("rediss://{at}/jobs?ca={ca}")).await.unwrap();
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_an_invalid_parameter() {
    let safe = Safe::start();
    let garbage: PathBuf = safe.folder.path().join("garbage.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for content in ["", "no certificate", broken] {
        fs::write(&garbage, content).unwrap();
        for file in [garbage.clone(), garbage.with_extension("missing")] {
            let address = format!("rediss://127.0.0.1:{}/jobs?ca={}", safe.port, file.display());
            let error = safe.open(&address).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{content}: {error:#}");
            assert_eq!(error.field(), Some("ca"), "{content}: {error:#}");
        }
    }
}

//! A running service. It stops when it is dropped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::backends::memory::{MemoryBackend, MemoryConfig};
use mailbox::testing::ManualClock;
use mailbox::{Backend, Timestamp};
use mailbox_server::auth::Vault;
use mailbox_server::{Auth, Config, Listener, Service, Traces};
use mailbox_wire::capability::Caveat;
use rustls::ClientConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::certificate::{Certificate, here};
use super::{Client, Connection, H2Client, OapClient, Shared, share};

/// What a service is started with.
pub(crate) struct Rig {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) vault: Vault,
    pub(crate) config: Config,
    traces: Option<Traces>,
    certificate: Option<Certificate>,
}

/// A service that runs.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    /// For OAP/1.
    pub(crate) oap: SocketAddr,
    /// The same, but little fits between the service and one who does not read.
    pub(crate) tight: SocketAddr,
    /// The same with TLS, if there is a certificate.
    pub(crate) oaps: Option<(SocketAddr, Arc<ClientConfig>)>,
    pub(crate) auth: Arc<Auth>,
    /// The operator's capability.
    pub(crate) operator: String,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<()>,
    _shared: Option<Shared>,
}

/// A store in memory, on this clock.
pub(crate) fn memory(clock: &ManualClock) -> Arc<dyn Backend> {
    MemoryBackend::with_config(MemoryConfig::default().with_clock(clock.clock())).unwrap()
}

/// A store in a journal.
pub(crate) async fn journal(path: &std::path::Path, config: JournalConfig) -> Arc<dyn Backend> {
    JournalBackend::open_with(path, config.with_segment_len(4 << 20)).await.unwrap()
}

/// A port whose connections have little room for what is to be sent.
fn narrow() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(1024).unwrap()
}

impl Rig {
    /// In memory and in real time.
    pub(crate) fn new() -> Self {
        Self::on(MemoryBackend::new())
    }

    /// On this store.
    pub(crate) fn on(store: Arc<dyn Backend>) -> Self {
        let mut config = Config::default();
        // The rules of these stores are the library's own, which have no bounds on age.
        config.allow_unbounded_retention = true;
        Self { store, vault: Vault::memory(), config, traces: None, certificate: None }
    }

    /// With other settings.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// With its calls traced.
    pub(crate) fn traced(mut self, traces: &Traces) -> Self {
        self.traces = Some(traces.clone());
        self
    }

    /// With TLS for OAP/1, too.
    pub(crate) fn certified(mut self) -> Self {
        self.certificate = Some(Certificate::new());
        self
    }

    /// With keys and revocations in a directory.
    pub(crate) fn keeping(mut self, path: &std::path::Path) -> Self {
        self.vault = Vault::directory(path).unwrap();
        self
    }

    /// Starts it.
    pub(crate) async fn start(self) -> Served {
        let mut served = self.start_alone().await;
        served._shared = Some(share());
        served
    }

    /// Starts it for one who has the machine already.
    pub(crate) async fn start_alone(self) -> Served {
        let auth = Auth::open(self.vault, self.config.capabilities.clone()).unwrap();
        let operator = auth.operator().unwrap().encode();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let frames = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let oap = frames.local_addr().unwrap();
        let service = Service::traced(self.store, Arc::clone(&auth), self.config, self.traces);
        let stop = CancellationToken::new();
        let small = narrow();
        let tight = small.local_addr().unwrap();
        let mut listeners = vec![Listener::tcp(listener)];
        listeners.extend([frames, small].map(|it| Listener::tcp(it).for_oap()));
        let oaps = self.certificate.map(|certificate| {
            let listener = narrow();
            let address = listener.local_addr().unwrap();
            listeners.push(Listener::tls(listener, certificate.server()).for_oap());
            (address, certificate.client())
        });
        let running = tokio::spawn(mailbox_server::run(listeners, service, stop.clone()));
        Served { address, oap, tight, oaps, auth, operator, stop, running, _shared: None }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Served {
    /// A client with the operator's capability.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(&self.operator).await
    }

    /// A client with this capability.
    pub(crate) async fn client_with(&self, capability: &str) -> Client {
        Client::new(self.connection().await, capability)
    }

    /// A client that speaks OAP/1, with the operator's capability.
    pub(crate) async fn oap_client(&self) -> OapClient {
        self.oap_client_with(&self.operator).await
    }

    /// The same with this capability.
    pub(crate) async fn oap_client_with(&self, capability: &str) -> OapClient {
        let mut client = OapClient::open(self.oap).await;
        client.start(capability).await;
        client
    }

    /// A client that speaks OAP/1 over TLS.
    pub(crate) async fn oaps_client(&self) -> OapClient<TlsStream<TcpStream>> {
        let (address, config) = self.oaps.clone().expect("there is a certificate");
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = TlsConnector::from(config).connect(here(), stream).await.unwrap();
        let mut client = OapClient::over(stream);
        client.start(&self.operator).await;
        client
    }

    /// A client that speaks HTTP/2, and lets so many bytes come of an answer at a time.
    pub(crate) async fn h2_client(&self, window: u32) -> H2Client {
        H2Client::open(self.address, window).await
    }

    /// Nothing but a connection.
    pub(crate) async fn connection(&self) -> Connection {
        Connection::open(self.address).await
    }

    /// A capability with these caveats, good for an hour unless one says otherwise.
    pub(crate) fn mint(&self, texts: &[&str]) -> String {
        let mut all = caveats(texts);
        if !texts.iter().any(|text| text.starts_with("exp")) {
            all.push(soon(Duration::from_secs(3600)));
        }
        self.auth.mint(&all).unwrap().encode()
    }
}

/// Caveats as they are written.
pub(crate) fn caveats(texts: &[&str]) -> Vec<Caveat> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Up to this long from now.
pub(crate) fn soon(after: Duration) -> Caveat {
    let ms = Timestamp::now().after(after).as_unix_millis();
    Caveat::Expires(mailbox_wire::capability::Timestamp::from_unix_ms(ms).unwrap())
}

//! Somebody between a backend and its server who passes everything on, until told to do harm: to
//! keep replies back, to lose one, to close connections. So a test decides what is lost, and when.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use mailbox_redis_servers::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to the next script.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// The server runs it, and its reply is lost with the connection.
    ReplyLost,
    /// The connection is closed as soon as the server has it.
    ClosedBehind,
}

pub(super) struct Proxy {
    address: SocketAddr,
    plan: Arc<Plan>,
    listening: JoinHandle<()>,
}

struct Plan {
    next: Mutex<Option<Fault>>,
    orders: watch::Sender<Orders>,
    connections: AtomicU32,
    scripts: AtomicU32,
}

impl Plan {
    fn take(&self) -> Option<Fault> {
        self.next.lock().unwrap().take()
    }
}

/// What all connections obey.
#[derive(Debug, Clone, Copy, Default)]
struct Orders {
    /// Replies are kept back.
    is_holding: bool,
    /// How often all connections were closed.
    cuts: u32,
}

impl Proxy {
    pub(super) async fn before(node: &Node) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, server) = (listener.local_addr().unwrap(), node.address());
        let (orders, _) = watch::channel(Orders::default());
        let (next, connections) = (Mutex::new(None), AtomicU32::new(0));
        let plan = Arc::new(Plan { next, orders, connections, scripts: AtomicU32::new(0) });
        let own = Arc::clone(&plan);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                own.connections.fetch_add(1, Ordering::Relaxed);
                let (server, plan) = (server.clone(), Arc::clone(&own));
                // A connection that breaks is what this is for.
                tokio::spawn(async move { drop(pass_on(client, &server, &plan).await) });
            }
        });
        Self { address, plan, listening }
    }

    /// What a backend that goes through it opens.
    pub(super) fn url(&self) -> String {
        super::url(&self.address.to_string())
    }

    /// Does harm to the next script.
    pub(super) fn harm_next(&self, fault: Fault) {
        *self.plan.next.lock().unwrap() = Some(fault);
    }

    /// Whether that has happened.
    pub(super) fn is_harm_done(&self) -> bool {
        self.plan.next.lock().unwrap().is_none()
    }

    /// Keeps replies back.
    pub(super) fn hold(&self) {
        self.plan.orders.send_modify(|orders| orders.is_holding = true);
    }

    /// Lets replies through.
    pub(super) fn let_go(&self) {
        self.plan.orders.send_modify(|orders| orders.is_holding = false);
    }

    /// Closes all connections; what was kept back is lost.
    pub(super) fn cut(&self) {
        self.plan.orders.send_modify(|orders| {
            *orders = Orders { is_holding: false, cuts: orders.cuts + 1 };
        });
    }

    /// Scripts that were asked for.
    pub(super) fn scripts(&self) -> u32 {
        self.plan.scripts.load(Ordering::Relaxed)
    }

    /// Connections that were made.
    pub(super) fn connections(&self) -> u32 {
        self.plan.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn pass_on(mut client: TcpStream, server: &str, plan: &Plan) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let mut orders = plan.orders.subscribe();
    let cuts = orders.borrow().cuts;
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let Orders { is_holding, cuts: by_now } = *orders.borrow_and_update();
        if by_now != cuts {
            return Ok(());
        }
        tokio::select! {
            _ = orders.changed() => {}
            read = client.read(&mut request) => {
                let request = &request[..read?];
                server.write_all(request).await?;
                let scripts = count_scripts(request);
                plan.scripts.fetch_add(scripts, Ordering::Relaxed);
                if request.is_empty() {
                    return Ok(());
                }
                let fault = if scripts > 0 { plan.take() } else { None };
                if fault == Some(Fault::ReplyLost) {
                    server.readable().await?;
                }
                if fault.is_some() {
                    return Ok(());
                }
            }
            read = server.read(&mut reply), if !is_holding => {
                let reply = &reply[..read?];
                client.write_all(reply).await?;
                if reply.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

/// How many scripts a request asks for. One that is cut in two by the network counts as none: tests
/// send few bytes.
fn count_scripts(request: &[u8]) -> u32 {
    let found = request.windows(7).filter(|word| word == b"EVALSHA").count();
    u32::try_from(found).unwrap()
}

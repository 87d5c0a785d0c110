//! Servers in processes of their own: this program, called with a first word that no part has. A
//! server says where it is and ends when nobody holds its standard input any more.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::backends::memory::{MemoryBackend, MemoryConfig};
use mailbox::{Backend, Policy};
use mailbox_server::auth::Vault;
use mailbox_server::{Auth, Config, Listener, Service};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::oap::echo::{self, Lengths};

const CHILD: &str = "http-child";
/// What a limit says for its capability: it wants none.
const NO_CAPABILITY: &str = "none";

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(crate) address: SocketAddr,
    /// Where frames of OAP/1 go.
    pub(crate) oap: SocketAddr,
    /// What every request has in its head, or every connection in its first frame.
    pub(crate) capability: String,
}

impl Server {
    /// Starts a server: `memory`, `journal PATH`, `constant`, or `echo` with lengths of answers.
    pub(crate) fn start(words: &[&str]) -> Self {
        let program = std::env::current_exe().expect("a running program has a path");
        let mut child = Command::new(program)
            .arg(CHILD)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that is there starts");
        let stdout = child.stdout.take().expect("it was asked for");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a server says where it is");
        let said: Vec<&str> = line.trim().split(' ').collect();
        let &[address, oap, capability] = &said[..] else { panic!("no server says {line:?}") };
        Self {
            stdin: child.stdin.take(),
            child,
            address: address.parse().expect("an address"),
            oap: oap.parse().expect("an address"),
            capability: capability.to_owned(),
        }
    }

    /// The capability, if it is a service.
    pub(crate) fn needed(&self) -> Option<&str> {
        Some(self.capability.as_str()).filter(|capability| *capability != NO_CAPABILITY)
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves, if that is what this program was started for.
pub(crate) fn serve_as_child(words: &[String]) -> bool {
    if words.first().map(String::as_str) != Some(CHILD) {
        return false;
    }
    let runtime = super::two_threads();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port to listen on");
        let address = listener.local_addr().expect("it is bound");
        match words[1].as_str() {
            "constant" => {
                announce(address, address, NO_CAPABILITY);
                tokio::spawn(super::constant::serve(listener));
                until_left().await;
            }
            "echo" => {
                announce(address, address, NO_CAPABILITY);
                tokio::spawn(echo::serve(listener, Lengths::read(&words[2..])));
                until_left().await;
            }
            store => {
                let store = open(store, words.get(2).map(String::as_str)).await;
                serve(listener, store).await;
            }
        }
    });
    true
}

fn announce(address: SocketAddr, oap: SocketAddr, capability: &str) {
    println!("{address} {oap} {capability}");
    std::io::stdout().flush().expect("somebody reads it");
}

async fn until_left() {
    let read = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let _ = tokio::task::spawn_blocking(read).await;
}

/// As a service has it, but for the size of a mailbox: backlogs are measured too.
fn rules() -> Policy {
    Policy { max_attempts: Some(5), max_size: Some(4_000_000), ..Policy::default() }
}

async fn open(store: &str, path: Option<&str>) -> Arc<dyn Backend> {
    if store == "memory" {
        let config = MemoryConfig::default().with_policy(rules());
        return MemoryBackend::with_config(config).expect("good settings");
    }
    let path = Path::new(path.expect("a journal is somewhere"));
    let config = JournalConfig::default().with_policy(rules());
    JournalBackend::open_with(path, config).await.expect("a new journal opens")
}

async fn serve(listener: TcpListener, store: Arc<dyn Backend>) {
    let config = Config::default();
    let auth = Auth::open(Vault::memory(), config.capabilities.clone()).expect("in memory");
    let capability = auth.operator().expect("it can be made").encode();
    let service = Service::new(Arc::clone(&store), auth, config);
    let frames = TcpListener::bind("127.0.0.1:0").await.expect("a port to listen on");
    let listeners = vec![Listener::tcp(listener), Listener::tcp(frames).for_oap()];
    let address = |at: usize| listeners[at].address().expect("it is bound");
    announce(address(0), address(1), &capability);
    let stop = CancellationToken::new();
    let running = tokio::spawn(mailbox_server::run(listeners, service, stop.clone()));
    until_left().await;
    stop.cancel();
    let _ = running.await;
    let _ = store.close().await;
}

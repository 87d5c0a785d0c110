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

const CHILD: &str = "http-child";

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(super) address: SocketAddr,
    /// What every request has in its head.
    pub(super) capability: String,
}

impl Server {
    /// Starts a server: `memory`, `journal PATH` or `constant`.
    pub(super) fn start(words: &[&str]) -> Self {
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
        let (address, capability) = line.trim().split_once(' ').expect("two words");
        Self {
            stdin: child.stdin.take(),
            child,
            address: address.parse().expect("an address"),
            capability: capability.to_owned(),
        }
    }

    /// Memory that it has at the moment, in bytes.
    pub(super) fn resident(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or_default() * 4096
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
                announce(address, "none");
                tokio::spawn(super::constant::serve(listener));
                until_left().await;
            }
            store => {
                let store = open(store, words.get(2).map(String::as_str)).await;
                serve(listener, address, store).await;
            }
        }
    });
    true
}

fn announce(address: SocketAddr, capability: &str) {
    println!("{address} {capability}");
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

async fn serve(listener: TcpListener, address: SocketAddr, store: Arc<dyn Backend>) {
    let config = Config::default();
    let auth = Auth::open(Vault::memory(), config.capabilities.clone()).expect("in memory");
    let capability = auth.operator().expect("it can be made").encode();
    let service = Service::new(Arc::clone(&store), auth, config);
    announce(address, &capability);
    let stop = CancellationToken::new();
    let listeners = vec![Listener::tcp(listener)];
    let running = tokio::spawn(mailbox_server::run(listeners, service, stop.clone()));
    until_left().await;
    stop.cancel();
    let _ = running.await;
    let _ = store.close().await;
}

//! One Redis server.
//!
//! Invariant: between [`Node::start`] and [`Node::kill`] the server answers on its port, unless it
//! is paused or has ended by itself; port, folder and configuration stay the same over restarts.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis::{Connection, IntoConnectionInfo, RedisConnectionInfo, RedisResult};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::port::Reservation;
use crate::process::{self, Process};
use crate::reply;
use crate::wait::{self, PATIENCE};

/// So often another port is tried.
const PORTS: usize = 10;
/// A server that runs answers sooner than this, even on a busy machine.
const SHORT: Duration = Duration::from_secs(2);
/// For one look at a server that starts: whoever listens on its port may be somebody else.
const PROBE: Duration = Duration::from_millis(500);
/// Written before the caller's directives, which win: the last one counts.
const DEFAULTS: [(&str, &str); 4] =
    [("protected-mode", "no"), ("daemonize", "no"), ("save", ""), ("appendonly", "no")];

/// What the program is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Data,
    Sentinel,
}

/// One redis-server process on a loopback port, with a folder of its own. Dropping it kills it.
#[derive(Debug)]
pub struct Node {
    kind: Kind,
    host: String,
    /// The one for clients first, then that of the cluster bus if there is one.
    ports: Vec<Reservation>,
    password: Option<String>,
    /// `None` after a kill. Before the folder: the server must not write into it any more.
    process: Option<Process>,
    pid: u32,
    folder: TempDir,
}

impl Node {
    /// Starts a server and waits until it answers. `options` are directives of redis.conf; they win
    /// over the defaults of this crate: 127.0.0.1, a free port, nothing persisted.
    ///
    /// # Errors
    /// If redis-server is missing, refuses the options or does not answer in time.
    pub fn start(options: &[(&str, &str)]) -> io::Result<Self> {
        Self::start_as(Kind::Data, options)
    }

    pub(crate) fn start_as(kind: Kind, options: &[(&str, &str)]) -> io::Result<Self> {
        let mut attempt = if option(options, "port").is_some() { PORTS } else { 1 };
        loop {
            match Self::try_start(kind, options) {
                // Somebody who does not reserve took the port between our look and the start.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < PORTS => {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn try_start(kind: Kind, options: &[(&str, &str)]) -> io::Result<Self> {
        let host = option(options, "bind").and_then(|bind| bind.split(' ').next());
        let host = host.unwrap_or("127.0.0.1").to_owned();
        let ports = reserve(&host, options)?;
        let folder = tempfile::Builder::new().prefix("mailbox-redis-").tempdir()?;
        let password = option(options, "requirepass").map(str::to_owned);
        let mut node = Self { kind, host, ports, password, process: None, pid: 0, folder };
        std::fs::write(node.folder.path().join("redis.conf"), node.configuration(options)?)?;
        node.launch()?;
        Ok(node)
    }

    fn configuration(&self, options: &[(&str, &str)]) -> io::Result<String> {
        let folder = self.folder.path().to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let ports: Vec<String> = self.ports.iter().map(|port| port.port().to_string()).collect();
        let mut all = vec![("bind", self.host.as_str()), ("dir", folder)];
        all.extend(["port", "cluster-port"].into_iter().zip(ports.iter().map(String::as_str)));
        if self.kind == Kind::Data {
            all.extend(DEFAULTS);
        }
        all.extend(options);
        let mut text = String::new();
        for (name, value) in all {
            let value = if value.is_empty() { "\"\"" } else { value };
            writeln!(text, "{name} {value}").expect("a String takes everything");
        }
        Ok(text)
    }

    /// Starts the process and waits until it answers.
    fn launch(&mut self) -> io::Result<()> {
        let arguments: &[&str] = if self.kind == Kind::Sentinel { &["--sentinel"] } else { &[] };
        let mut process = Process::start(self.folder.path(), arguments)?;
        self.pid = process.pid();
        let answer = wait::until(PATIENCE, "redis-server answers", || match process.ended() {
            Ok(None) => self.probe().map(|()| None),
            Ok(Some(reason)) | Err(reason) => Ok(Some(reason)),
        });
        match answer {
            Ok(None) => self.process = Some(process),
            Ok(Some(reason)) => return Err(reason),
            Err(late) => return Err(io::Error::new(late.kind(), self.with_log(&late.to_string()))),
        }
        Ok(())
    }

    /// Whether it is this very server that answers, and not another one on the same port.
    fn probe(&self) -> Result<(), String> {
        let connection = self.connect_within(PROBE);
        let mut connection = connection.map_err(|error| error.to_string())?;
        reply::ask::<String>(&mut connection, "PING")?;
        let server = reply::info(&mut connection, "server")?;
        reply::expect(&server, "process_id", &self.pid.to_string())
    }

    /// The port for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports[0].port()
    }

    /// The port of the cluster bus; that for clients if it is in no cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.ports.last().map_or(0, Reservation::port)
    }

    /// The address it listens on.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port())
    }

    /// The id of the redis-server process; after a kill that of the dead one.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A connection for plain commands. It waits at most 20 seconds for an answer.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn connect(&self) -> RedisResult<Connection> {
        self.connect_within(PATIENCE)
    }

    fn connect_within(&self, limit: Duration) -> RedisResult<Connection> {
        let mut settings = RedisConnectionInfo::default();
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let to = (self.host.as_str(), self.port()).into_connection_info()?;
        reply::connect(to.set_redis_settings(settings), limit)
    }

    /// A connection to a server that must not be waited for; none if it is paused or dead.
    pub(crate) fn ask_soon(&self) -> Result<Connection, String> {
        if self.process.as_ref().is_some_and(|process| !process.answers()) {
            return Err(format!("{} does not run", self.address()));
        }
        self.connect_within(SHORT).map_err(|error| format!("{}: {error}", self.address()))
    }

    /// Ends the server with SIGKILL and waits until it is gone. What it has on disk stays.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops the server with SIGSTOP: it keeps its connections and does not answer. Returns when it
    /// stands still.
    ///
    /// # Panics
    /// If the server was killed.
    pub fn pause(&self) {
        let process = self.process.as_ref().expect("only a running server can be paused");
        process.pause().expect("SIGSTOP cannot be refused");
    }

    /// Lets a paused server go on. Does nothing to one that runs or was killed.
    pub fn resume(&self) {
        if let Some(process) = &self.process {
            process.signal(Signal::CONT);
        }
    }

    /// Starts the server again, killing it first if it runs: same port, same folder, same
    /// configuration, with what Redis itself has since written into it (as Sentinel makes it do).
    ///
    /// # Errors
    /// If it does not answer in time.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let start = Instant::now();
        loop {
            match self.launch() {
                // A connection of the last run may still hold the port for a moment.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < PATIENCE => {}
                result => return result,
            }
        }
    }

    /// The processor time of the running process, user and system; 0 after a kill.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.process.as_ref().map_or(Duration::ZERO, Process::cpu_time)
    }

    /// The end of its log.
    #[must_use]
    pub fn log(&self) -> String {
        process::tail(&self.log_file(), 0)
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }

    /// A text followed by the end of the log.
    pub(crate) fn with_log(&self, text: &str) -> String {
        format!("{text}\nlog of the server on {}:\n{}", self.address(), self.log())
    }
}

/// The addresses of nodes, as a URL has them.
pub(crate) fn addresses(nodes: &[Node]) -> String {
    nodes.iter().map(Node::address).collect::<Vec<_>>().join(",")
}

/// The value of a directive; the last one counts.
fn option<'a>(options: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    options.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
}

/// The port for clients and, for a node of a cluster, that of the bus.
fn reserve(host: &str, options: &[(&str, &str)]) -> io::Result<Vec<Reservation>> {
    let port = |name| match option(options, name) {
        Some(port) => port.parse().map(Reservation::fixed).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{name} {port} is not a port"))
        }),
        None => Reservation::free(host),
    };
    let mut ports = vec![port("port")?];
    if option(options, "cluster-enabled") == Some("yes") {
        ports.push(port("cluster-port")?);
    }
    Ok(ports)
}

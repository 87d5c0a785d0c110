//! Connections to one server: one that everybody's calls share, and one for calls that wait for
//! replicas, because that one stands still meanwhile. Invariant: a connection that broke is used by
//! nobody again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, Value};
use tokio::sync::{mpsc, oneshot};

use crate::backends::redis::config::RedisConfig;
use crate::backends::redis::planted::Bug;
use crate::backends::redis::replicas::{Replicas, following};
use crate::backends::redis::scripts::Order;
use crate::backends::redis::target::{Node, Target};
use crate::backends::redis::trouble::{Trouble, connection};

/// Longest a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(2);
/// How long to wait for another call that does the same.
pub(crate) const HELD_UP: Duration = Duration::from_secs(3);
/// Calls that wait for their turn to be replicated.
const QUEUED: usize = 1024;
/// Calls that are replicated together.
const TOGETHER: usize = 128;

/// What a call waits for beside its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirm {
    Nothing,
    /// All replicas that the server has, by what its link knows of them.
    Replicas,
    /// The server's own disk.
    Disk,
}

/// A server.
#[derive(Debug)]
pub(crate) struct Link {
    line: Arc<Line>,
    replicas: Arc<Replicas>,
    /// Where calls queue that wait for confirmation.
    confirmed: Mutex<Option<mpsc::Sender<Waiting>>>,
}

/// A call that waits to be confirmed.
#[derive(Debug)]
struct Waiting {
    order: Arc<Order>,
    asking: bool,
    by_text: bool,
    answer: oneshot::Sender<Result<Value, Trouble>>,
}

/// A connection that is made when it is needed, and again when it broke.
#[derive(Debug)]
pub(crate) struct Line {
    node: Node,
    target: Arc<Target>,
    config: Arc<RedisConfig>,
    current: Mutex<Option<(u64, MultiplexedConnection)>>,
    /// Held by the one who connects.
    connecting: tokio::sync::Mutex<()>,
    connected: AtomicU64,
}

impl Link {
    pub(crate) fn new(node: Node, target: Arc<Target>, config: Arc<RedisConfig>) -> Self {
        let replicas = Arc::new(Replicas::new(config.replicas.unwrap_or(0)));
        let line = Arc::new(Line::new(node, target, config));
        Self { line, replicas, confirmed: Mutex::new(None) }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.line.node
    }

    pub(crate) fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Gives up what this server has not answered: it may never.
    pub(crate) fn hang_up(&self) {
        self.line.current.lock().take();
        self.confirmed.lock().take();
    }

    /// Makes a call.
    pub(crate) async fn call(
        &self,
        order: &Arc<Order>,
        asking: bool,
        confirm: Confirm,
    ) -> Result<Value, Trouble> {
        match self.once(order, asking, confirm, false).await {
            Err(Trouble::UnknownScript) => self.once(order, asking, confirm, true).await,
            other => other,
        }
    }

    async fn once(
        &self,
        order: &Arc<Order>,
        asking: bool,
        confirm: Confirm,
        by_text: bool,
    ) -> Result<Value, Trouble> {
        if confirm == Confirm::Nothing && !asking && !by_text {
            return self.line.run_one(&order.command).await;
        }
        if confirm == Confirm::Nothing {
            let mut commands = Vec::with_capacity(2);
            put(&mut commands, order, asking, by_text)?;
            let answers = self.line.run(commands).await?;
            return self.line.read(answers.into_iter().last());
        }
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { order: Arc::clone(order), asking, by_text, answer };
        let gone = || connection(format!("redis at {}: the connection was given up", self.node()));
        let queue = self.queue(confirm);
        queue.send(waiting).await.map_err(|_| Trouble::NotNow(gone()))?;
        answered.await.unwrap_or_else(|_| Err(Trouble::InDoubt(gone())))
    }

    fn queue(&self, confirm: Confirm) -> mpsc::Sender<Waiting> {
        let mut confirmed = self.confirmed.lock();
        if let Some(queue) = confirmed.as_ref().filter(|queue| !queue.is_closed()) {
            return queue.clone();
        }
        let (queue, orders) = mpsc::channel(QUEUED);
        let Line { node, target, config, .. } = &*self.line;
        let own = Line::new(node.clone(), Arc::clone(target), Arc::clone(config));
        tokio::spawn(confirm_all(own, Arc::clone(&self.replicas), confirm, orders));
        confirmed.insert(queue).clone()
    }

    /// Runs plain commands, none of which changes anything.
    pub(crate) async fn ask(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, Trouble> {
        let answers = self.line.run(commands).await?;
        answers.into_iter().map(|answer| self.line.read(Some(answer))).collect()
    }
}

/// Makes calls that wait for confirmation, all that have come together at once. Ends with whoever
/// makes them.
async fn confirm_all(
    line: Line,
    replicas: Arc<Replicas>,
    confirm: Confirm,
    mut orders: mpsc::Receiver<Waiting>,
) {
    while let Some(first) = orders.recv().await {
        let mut batch = VecDeque::from([first]);
        while batch.len() < TOGETHER
            && let Ok(next) = orders.try_recv()
        {
            batch.push_back(next);
        }
        // Whoever does not wait any more may have tried elsewhere: a second effect helps nobody.
        batch.retain(|waiting| !waiting.answer.is_closed());
        if batch.is_empty() {
            continue;
        }
        let run = run_confirmed(&line, &batch, confirm, &replicas);
        let answers = match tokio::time::timeout(line.config.response_timeout, run).await {
            Ok(answers) => answers,
            Err(_) => {
                line.current.lock().take();
                Err(Trouble::silent(&line.node))
            }
        };
        match answers {
            Ok(answers) => {
                for (waiting, answer) in batch.into_iter().zip(answers) {
                    // Whoever does not wait any more does not want to know.
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(trouble) => {
                for waiting in batch {
                    let _ = waiting.answer.send(Err(trouble.clone()));
                }
            }
        }
    }
}

async fn run_confirmed(
    line: &Line,
    batch: &VecDeque<Waiting>,
    confirm: Confirm,
    replicas: &Replicas,
) -> Result<Vec<Result<Value, Trouble>>, Trouble> {
    let mut commands = Vec::with_capacity(batch.len() + 2);
    for waiting in batch {
        put(&mut commands, &waiting.order, waiting.asking, waiting.by_text)?;
    }
    let planted = line.config.planted;
    let mut need = replicas.count();
    let is_confirmed = match confirm {
        _ if planted.has(Bug::NotWaited) => false,
        Confirm::Nothing => false,
        Confirm::Replicas => need > 0,
        Confirm::Disk => true,
    };
    if is_confirmed {
        commands.push(wait(line, confirm, need));
    }
    // Afterwards: a replica may have come, gone, or come back since servers were last asked.
    let is_counted = confirm == Confirm::Replicas && line.config.replicas.is_none();
    if is_counted {
        commands.push(about_replicas());
    }
    let mut answers = line.run(commands).await?;
    let follow = is_counted.then(|| following(answers.pop()));
    let mut confirmed = if is_confirmed { answers.pop() } else { None };
    let alive = u32::try_from(follow.as_ref().map_or(0, Vec::len)).unwrap_or(u32::MAX);
    if alive > need && !planted.has(Bug::NotWaited) {
        replicas.raise(alive);
        need = alive;
        // On the same connection: what counts is what was written there.
        confirmed = line.run(vec![wait(line, confirm, need)]).await?.pop();
    }
    let mut answers = answers.into_iter();
    let doubt = match confirmed {
        Some(confirmed) if !planted.has(Bug::ShortCountIsEnough) => {
            let missing = follow.and_then(|follow| replicas.missing(&follow));
            line.doubt(&confirmed, need).or_else(|| missing.map(|name| line.unconfirmed(&name)))
        }
        _ => None,
    };
    Ok(batch
        .iter()
        .map(|waiting| {
            if waiting.asking {
                answers.next();
            }
            let answer = line.read(answers.next())?;
            match &doubt {
                Some(doubt) => Err(doubt.clone()),
                None => Ok(answer),
            }
        })
        .collect())
}

fn about_replicas() -> Cmd {
    redis::cmd("INFO").arg("replication").clone()
}

/// Waits until so many replicas, or the disk, have everything that this connection wrote.
fn wait(line: &Line, confirm: Confirm, need: u32) -> Cmd {
    let longest = line.config.replication_timeout.as_millis().to_string();
    let mut wait = redis::cmd(if confirm == Confirm::Disk { "WAITAOF" } else { "WAIT" });
    if confirm == Confirm::Disk {
        wait.arg(1).arg(0);
    } else {
        wait.arg(need);
    }
    wait.arg(longest).clone()
}

fn put(commands: &mut Vec<Cmd>, order: &Order, asking: bool, by_text: bool) -> Result<(), Trouble> {
    if asking {
        commands.push(redis::cmd("ASKING"));
    }
    let command = if by_text { order.by_text() } else { Some(order.command.clone()) };
    commands.push(command.ok_or(Trouble::UnknownScript)?);
    Ok(())
}

impl Line {
    fn new(node: Node, target: Arc<Target>, config: Arc<RedisConfig>) -> Self {
        Self {
            node,
            target,
            config,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            connected: AtomicU64::new(0),
        }
    }

    /// Why calls are in doubt that too few have confirmed.
    fn doubt(&self, confirmed: &Value, need: u32) -> Option<Trouble> {
        let (have, need, who) = match confirmed {
            // One that is no master any more, for example. What became of each call, its own answer
            // says; what was done is not confirmed.
            Value::ServerError(error) => {
                let (node, code) = (&self.node, error.code());
                let why = error.details().unwrap_or_default();
                let message = format!("redis at {node}: nobody confirms: {code} {why:.200}");
                return Some(Trouble::InDoubt(connection(message)));
            }
            Value::Int(replicas) => (*replicas, i64::from(need), "replicas"),
            Value::Array(both) => match both.first() {
                Some(Value::Int(local)) => (*local, 1, "disks"),
                _ => (0, 1, "disks"),
            },
            _ => (0, i64::from(need), "replicas"),
        };
        let message = || {
            let node = &self.node;
            format!("redis at {node}: {have} of {need} {who} confirmed in time; in doubt")
        };
        (have < need).then(|| Trouble::InDoubt(connection(message())))
    }

    fn unconfirmed(&self, name: &str) -> Trouble {
        let message = format!("redis at {}: its replica {name} does not confirm", self.node);
        Trouble::InDoubt(connection(format!("{message}; in doubt")))
    }

    /// Runs a command.
    async fn run_one(&self, command: &Cmd) -> Result<Value, Trouble> {
        let (number, mut connection) = self.connection().await?;
        let answer = connection.send_packed_command(command).await;
        let answer = answer.map_err(|error| {
            self.forget(number);
            Trouble::broken(&self.node, error)
        })?;
        self.read(Some(answer))
    }

    /// Runs commands in order, and gives one answer each.
    async fn run(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, Trouble> {
        let (number, mut connection) = self.connection().await?;
        let answers = match <[Cmd; 1]>::try_from(commands) {
            Ok([command]) => connection.send_packed_command(&command).await.map(|one| vec![one]),
            Err(commands) => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                let count = commands.len();
                for command in commands {
                    pipeline.add_command(command);
                }
                connection.send_packed_commands(&pipeline, 0, count).await
            }
        };
        answers.map_err(|error| {
            self.forget(number);
            Trouble::broken(&self.node, error)
        })
    }

    fn read(&self, answer: Option<Value>) -> Result<Value, Trouble> {
        match answer {
            Some(Value::ServerError(error)) => Err(Trouble::said(&self.node, &error)),
            Some(value) => Ok(value),
            None => Err(Trouble::silent(&self.node)),
        }
    }

    fn forget(&self, number: u64) {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|(known, _)| *known == number) {
            *current = None;
        }
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Trouble> {
        if let Some(current) = &*self.current.lock() {
            return Ok(current.clone());
        }
        // Whoever has it may be a call that nobody polls any more.
        let _alone = tokio::time::timeout(HELD_UP, self.connecting.lock()).await;
        if let Some(current) = &*self.current.lock() {
            return Ok(current.clone());
        }
        let client = self.target.client(&self.node, &self.config).map_err(Trouble::Refused)?;
        let connection = connect(&self.node, &client, AsyncConnectionConfig::new()).await?;
        let number = self.connected.fetch_add(1, Ordering::Relaxed);
        *self.current.lock() = Some((number, connection.clone()));
        Ok((number, connection))
    }
}

/// Makes a connection. Answers are waited for by whoever calls, not by the connection.
pub(crate) async fn connect(
    node: &Node,
    client: &redis::Client,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Trouble> {
    let config = config.set_connection_timeout(Some(CONNECTING)).set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.map_err(|error| Trouble::connecting(node, &error))
}

/// A switch that is set once.
#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// Sets it; true if nobody has before.
    pub(crate) fn first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

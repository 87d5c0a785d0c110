//! Send, receive and acknowledge by one task, one message at a time.

use std::sync::Arc;
use std::time::Instant;

use mailbox_redis_servers::Node;
use tokio::runtime::Runtime;

use crate::journal::load::Bodies;
use crate::journal::quantile;
use crate::redis::bare::Bare;
use crate::redis::ours::Ours;
use crate::redis::two_threads;
use crate::report::Row;
use crate::timing::{Cycle, race};

const CYCLES: u32 = 400;
const TIMES_THE_BARE_CLIENT: f64 = 1.3;

/// By a runtime with one thread, and by one with two.
pub(crate) fn against_bare_client(node: &Node) -> Vec<Row> {
    let one_thread = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime starts")
    };
    let mut rows = rows(node, 1, "one thread", &one_thread);
    rows.extend(self::rows(node, 2, "two threads", &two_threads));
    rows
}

fn rows(node: &Node, part: u8, threads: &str, runtime: &dyn Fn() -> Runtime) -> Vec<Row> {
    // First, because it tells the server the scripts.
    let mut ours = Mailbox::new(runtime(), node, &format!("ours-{part}"));
    let mut bare = Client::new(runtime(), node, &format!("bare-{part}"));
    let [our, its] = race(CYCLES, [&mut ours, &mut bare]);
    ours.runtime.block_on(ours.ours.close());
    let name = "redis send, receive, ack by one task : same scripts, bare client";
    let (our_p50, its_p50) = (quantile(&mut ours.nanos, 0.5), quantile(&mut bare.nanos, 0.5));
    vec![
        Row::compared(format!("{name}, {threads}"), our.best, its.best)
            .at_most(TIMES_THE_BARE_CLIENT),
        Row::compared(format!("{name}, {threads}, p50"), our_p50, its_p50),
    ]
}

struct Mailbox {
    runtime: Runtime,
    ours: Arc<Ours>,
    bodies: Bodies,
    /// What each cycle took.
    nanos: Vec<f64>,
}

impl Mailbox {
    fn new(runtime: Runtime, node: &Node, mailbox: &str) -> Self {
        let ours = runtime.block_on(Ours::open(node, mailbox));
        runtime.block_on(ours.cycle(&mut Bodies::new(), 1));
        Self { runtime, ours, bodies: Bodies::new(), nanos: Vec::new() }
    }
}

impl Cycle for Mailbox {
    fn run(&mut self, times: u32) {
        let (ours, mut bodies) = (Arc::clone(&self.ours), self.bodies.clone());
        let mut nanos = Vec::with_capacity(times as usize);
        let task = self.runtime.spawn(async move {
            for _ in 0..times {
                let start = Instant::now();
                ours.cycle(&mut bodies, 1).await;
                nanos.push(start.elapsed().as_nanos() as f64);
            }
            nanos
        });
        self.nanos.extend(self.runtime.block_on(task).expect("no panic"));
    }
}

struct Client {
    runtime: Runtime,
    /// Away only while it runs.
    bare: Option<Bare>,
    bodies: Bodies,
    nanos: Vec<f64>,
}

impl Client {
    fn new(runtime: Runtime, node: &Node, mailbox: &str) -> Self {
        let bare = Some(runtime.block_on(Bare::connect(node, mailbox)));
        Self { runtime, bare, bodies: Bodies::new(), nanos: Vec::new() }
    }
}

impl Cycle for Client {
    fn run(&mut self, times: u32) {
        let (mut bare, mut bodies) = (self.bare.take(), self.bodies.clone());
        let mut nanos = Vec::with_capacity(times as usize);
        let task = self.runtime.spawn(async move {
            if let Some(bare) = &mut bare {
                for _ in 0..times {
                    let start = Instant::now();
                    bare.cycle(&bodies.next()).await;
                    nanos.push(start.elapsed().as_nanos() as f64);
                }
            }
            (bare, nanos)
        });
        let (bare, nanos) = self.runtime.block_on(task).expect("no panic");
        self.bare = bare;
        self.nanos.extend(nanos);
    }
}

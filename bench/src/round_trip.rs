//! `Mailbox::local` against a `tokio::mpsc` + `oneshot` round trip, and how long a waiting receive
//! sleeps on after a message is there.
//!
//! Two readings of a round trip. One message there and done with (sent, received, acknowledged) has
//! the bound. A request and its reply between two tasks is two such messages and two wake-ups; it
//! is printed to show what the contract costs where a bare channel would do.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mailbox::{Mailbox, ReceiveOptions, SendOptions};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::report::Row;
use crate::timing::{Cycle, race};

const ROUND_TRIPS: u32 = 20_000;
const WAKE_UPS: usize = 4_000;

/// Send, receive, reply, acknowledge, receive the reply, acknowledge that: everything the contract
/// asks for, against a channel that loses the request when its worker dies.
pub(crate) fn local() -> Vec<Row> {
    let one_thread = || tokio::runtime::Builder::new_current_thread().enable_time().build();
    let two_threads =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let name = "Mailbox::local request and reply : tokio mpsc + oneshot";
    let mut rows = Vec::new();
    for (runtime, peer_runtime, threads) in
        [(one_thread(), one_thread(), "one thread"), (two_threads(), two_threads(), "two threads")]
    {
        let mut ours = Local::new(runtime.expect("a runtime starts"));
        let mut peer = Channels::new(peer_runtime.expect("a runtime starts"));
        let [ours, peer] = race(ROUND_TRIPS, [&mut ours, &mut peer]);
        rows.push(Row::compared(format!("{name}, {threads}"), ours.best, peer.best));
    }
    rows
}

/// One message there and done with. No task switch on our side: this is what the library costs.
pub(crate) fn cycle() -> Vec<Row> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build();
    let mut ours = Single {
        runtime: runtime().expect("a runtime starts"),
        mailbox: Mailbox::local("cycle").expect("a good name"),
    };
    let mut peer = Channels::new(runtime().expect("a runtime starts"));
    let [ours, peer] = race(ROUND_TRIPS, [&mut ours, &mut peer]);
    let name = "Mailbox::local round trip (send, receive, acknowledge) : tokio mpsc + oneshot";
    vec![Row::compared(name, ours.best, peer.best).at_most(4.0)]
}

struct Single {
    runtime: Runtime,
    mailbox: Mailbox<u64>,
}

impl Cycle for Single {
    fn run(&mut self, times: u32) {
        self.runtime.block_on(async {
            for body in 0..u64::from(times) {
                self.mailbox.send(body).await.expect("room");
                for message in self.mailbox.receive().await.expect("open") {
                    assert_eq!(*message.body().expect("local"), body);
                    message.acknowledge().await.expect("in time");
                }
            }
        });
    }
}

/// From the call of `send` to the moment the receiver has the message, on another thread.
pub(crate) fn wake_up() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime starts");
    let mut micros = runtime.block_on(async {
        let mailbox: Mailbox<Instant> = Mailbox::local("wake").expect("a good name");
        let mut micros = Vec::with_capacity(WAKE_UPS);
        for _ in 0..WAKE_UPS {
            let receiver = mailbox.clone();
            let waiting = tokio::spawn(async move {
                let options = ReceiveOptions::new().with_wait(Duration::from_secs(5));
                let message = receiver.receive_with(options).await.expect("open").remove(0);
                let woken = message.body().expect("local").elapsed();
                message.acknowledge().await.expect("in time");
                woken
            });
            while mailbox.stats().await.expect("open").waiters == 0 {
                tokio::task::yield_now().await;
            }
            mailbox.send(Instant::now()).await.expect("room");
            micros.push(waiting.await.expect("no panic").as_secs_f64() * 1e6);
        }
        micros
    });
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[(share * (micros.len() - 1) as f64) as usize];
    vec![
        Row::alone("a waiting receive is woken, p50", at(0.5), "us").at_most(50.0),
        Row::alone("a waiting receive is woken, p99", at(0.99), "us"),
    ]
}

struct Local {
    runtime: Runtime,
    requests: Mailbox<u64, u64>,
    replies: Mailbox<u64>,
    _server: JoinHandle<()>,
}

impl Local {
    fn new(runtime: Runtime) -> Self {
        let requests: Mailbox<u64, u64> = Mailbox::local("requests").expect("a good name");
        let replies = Mailbox::local("replies").expect("a good name");
        let served = requests.clone();
        let server = runtime.spawn(async move {
            while let Ok(messages) = served.receive_with(waiting()).await {
                for message in messages {
                    let body = *message.body().expect("local");
                    message.reply(body).await.expect("there is a reply mailbox");
                    message.acknowledge().await.expect("in time");
                }
            }
        });
        Self { runtime, requests, replies, _server: server }
    }
}

impl Cycle for Local {
    fn run(&mut self, times: u32) {
        let (requests, replies) = (self.requests.clone(), self.replies.clone());
        self.runtime.block_on(async {
            tokio::spawn(async move {
                for body in 0..u64::from(times) {
                    let options = SendOptions::new().with_reply_to(&replies);
                    requests.send_with(body, options).await.expect("room");
                    for reply in replies.receive_with(waiting()).await.expect("open") {
                        assert_eq!(*reply.body().expect("local"), body);
                        reply.acknowledge().await.expect("in time");
                    }
                }
            })
            .await
            .expect("no panic");
        });
    }
}

fn waiting() -> ReceiveOptions {
    ReceiveOptions::new().with_wait(Duration::from_secs(20))
}

struct Channels {
    runtime: Runtime,
    requests: mpsc::Sender<(u64, oneshot::Sender<u64>)>,
    _server: JoinHandle<()>,
}

impl Channels {
    fn new(runtime: Runtime) -> Self {
        let (requests, mut served) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(64);
        let server = runtime.spawn(async move {
            while let Some((body, reply)) = served.recv().await {
                black_box(reply.send(body)).expect("the client waits");
            }
        });
        Self { runtime, requests, _server: server }
    }
}

impl Cycle for Channels {
    fn run(&mut self, times: u32) {
        let requests = self.requests.clone();
        self.runtime.block_on(async {
            tokio::spawn(async move {
                for body in 0..u64::from(times) {
                    let (reply, replied) = oneshot::channel();
                    requests.send((body, reply)).await.expect("the server runs");
                    assert_eq!(replied.await.expect("it replies"), body);
                }
            })
            .await
            .expect("no panic");
        });
    }
}

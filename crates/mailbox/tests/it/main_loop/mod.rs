//! Loops and clients from outside. Time is tokio's, paused: hours pass in milliseconds.

mod answers;
mod client;
mod faulty;
mod guard;
mod lease;
mod panics;
mod settling;
mod shared_client;
mod signal;
mod stopping;
mod trouble;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::memory::MemoryBackend;
use mailbox::main_loop::{
    Context, Handler, Health, LoopEnd, LoopOptions, MainLoop, MainLoopRequest, MainLoopResult,
    StopHandle,
};
use mailbox::{Backend, Mailbox, Message, Name, ReceiveOptions, SendOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use self::guard::{Watchdog, in_time};

type Requests = Mailbox<MainLoopRequest<String>, MainLoopResult<String>>;
type Replies = Mailbox<MainLoopResult<String>>;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A requests and a replies mailbox, of every kind that lives in this process.
fn pairs() -> [(Requests, Replies); 2] {
    [local(), memory()]
}

fn local() -> (Requests, Replies) {
    (Mailbox::local("requests").unwrap(), Mailbox::local("replies").unwrap())
}

fn memory() -> (Requests, Replies) {
    let backend = MemoryBackend::new();
    (on(&backend, "requests"), on(&backend, "replies"))
}

/// A mailbox of a backend.
fn on<T, R, B: Backend>(backend: &Arc<B>, name: &str) -> Mailbox<T, R>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let backend: Arc<dyn Backend> = Arc::<B>::clone(backend);
    Mailbox::new(backend, Name::parse(name).unwrap())
}

/// Sends a request; gives it back as it was sent.
async fn ask(requests: &Requests, replies: &Replies, text: &str) -> MainLoopRequest<String> {
    let request = MainLoopRequest::new(text.to_owned());
    send(requests, replies, &request).await;
    request
}

async fn send(requests: &Requests, replies: &Replies, request: &MainLoopRequest<String>) {
    let options = SendOptions::new().with_reply_to(replies);
    requests.send_with(request.clone(), options).await.unwrap();
}

/// The next reply, acknowledged. Waits for an hour.
async fn reply(replies: &Replies) -> MainLoopResult<String> {
    let options = ReceiveOptions::new().with_wait(seconds(3600));
    let message = replies.receive_with(options).await.unwrap().pop().expect("a reply in time");
    message.acknowledge().await.unwrap();
    message.into_body().unwrap()
}

/// What is there now, without waiting.
async fn receive_now(
    requests: &Requests,
) -> Vec<Message<MainLoopRequest<String>, MainLoopResult<String>>> {
    requests.receive_with(ReceiveOptions::new().with_max_messages(10)).await.unwrap()
}

async fn receive_results(replies: &Replies) -> Vec<Message<MainLoopResult<String>>> {
    replies.receive_with(ReceiveOptions::new().with_max_messages(10)).await.unwrap()
}

/// A handler from a closure, with the types that closures cannot guess.
fn handler<F, Fut>(handle: F) -> impl Handler<String, String>
where
    F: Fn(String, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    handle
}

fn echo() -> impl Handler<String, String> {
    handler(|text, _| async move { Ok(format!("{text}!")) })
}

/// A loop that runs in the background.
struct Running {
    main_loop: MainLoop<String, String>,
    stop: StopHandle,
    task: JoinHandle<LoopEnd>,
    _watchdog: Watchdog,
}

impl Running {
    fn start(requests: &Requests, handler: impl Handler<String, String>) -> Self {
        Self::with(requests, LoopOptions::new(), handler)
    }

    fn with(
        requests: &Requests,
        options: LoopOptions,
        handler: impl Handler<String, String>,
    ) -> Self {
        Self::of(MainLoop::new(requests.clone(), handler).with_options(options).unwrap())
    }

    fn of(main_loop: MainLoop<String, String>) -> Self {
        let running = main_loop.clone();
        let task = tokio::spawn(async move { running.run().await });
        Self { stop: main_loop.stop_handle(), main_loop, task, _watchdog: Watchdog::new() }
    }

    fn health(&self) -> Health {
        self.main_loop.health()
    }

    async fn stop(self) -> Health {
        self.stop.stop();
        assert_eq!(in_time(self.task).await.unwrap(), LoopEnd::Stopped);
        self.main_loop.health()
    }
}

/// Waits until `what` holds, for at most an hour.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..360_000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened");
}

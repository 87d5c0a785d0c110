//! The other process: does what it is asked on its own view of the same inboxes. It ends when
//! nobody can ask any more, whatever it is doing.

use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use mailbox::backends::directory::DirectoryBackend;
use mailbox::testing::ManualClock;
use mailbox::{Backend, Outgoing, ReceiveOptions, Result, Settlement};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::wire::{Ask, Call, Fault, Gave, Request, Response, Told};
use super::{Opening, forms};

/// Longest line: a batch of payloads that are as large as the cases need.
const LINE_LEN: u64 = 1 << 28;
/// Most requests that have been read and not looked at.
const QUEUED: usize = 1 << 16;

/// Serves until there is nobody to ask.
#[must_use]
pub(super) fn serve() -> ExitCode {
    let die = std::panic::take_hook();
    // Whoever waits for an answer must hear that there will be none.
    std::panic::set_hook(Box::new(move |info| {
        die(info);
        std::process::exit(101);
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    let (requests, asked) = mpsc::channel(QUEUED);
    std::thread::spawn(move || read(&requests));
    runtime.block_on(answer(asked));
    ExitCode::SUCCESS
}

/// Reads requests; ends the process when there are no more.
fn read(requests: &mpsc::Sender<Request>) {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(LINE_LEN).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            std::process::exit(0);
        }
        let Ok(request) = serde_json::from_slice(&line) else { std::process::exit(1) };
        if requests.blocking_send(request).is_err() {
            return;
        }
    }
}

async fn answer(mut asked: mpsc::Receiver<Request>) {
    let clock = ManualClock::new();
    let mut inboxes: Option<Arc<DirectoryBackend>> = None;
    let mut running: HashMap<u64, JoinHandle<()>> = HashMap::new();
    while let Some(Request { face, id, ask }) = asked.recv().await {
        if let Some(face) = face {
            clock.show(face);
        }
        running.retain(|_, call| !call.is_finished());
        match ask {
            Ask::Nothing => {}
            Ask::Open(opening) => match open(&opening, face.map(|_| &clock)).await {
                Ok(opened) => {
                    inboxes = Some(opened);
                    tell(id, Told::Gave(Gave::Done));
                }
                Err(error) => tell(id, Told::Failed(error.into())),
            },
            Ask::Call(call) => match &inboxes {
                Some(inboxes) => {
                    let inboxes = Arc::clone(inboxes);
                    let call = async move {
                        let called = perform(&*inboxes, call).await;
                        tell(
                            id,
                            called.map_or_else(|error| Told::Failed(error.into()), Told::Gave),
                        );
                    };
                    running.insert(id, tokio::spawn(call));
                }
                None => tell(id, Told::Failed(forms::garbled("nothing is open").into())),
            },
            Ask::Cancel => {
                let Some(call) = running.remove(&id) else { continue };
                call.abort();
                // What is asked next must find that it is gone.
                if call.await.is_err() {
                    tell(id, Told::Cancelled);
                }
            }
        }
    }
}

async fn open(opening: &Opening, clock: Option<&ManualClock>) -> Result<Arc<DirectoryBackend>> {
    DirectoryBackend::open_with(&opening.path, opening.config(clock)).await
}

/// In one piece: several calls may end at the same time.
fn tell(id: u64, told: Told) {
    let mut line = serde_json::to_vec(&Response { id, told }).expect("plain data");
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

async fn perform(inboxes: &dyn Backend, call: Call) -> Result<Gave> {
    let each = |result: Result<()>| result.map_err(Fault::from);
    Ok(match call {
        Call::Send(mailbox, batch) => {
            let batch: Result<Vec<Outgoing>> = batch.into_iter().map(Outgoing::try_from).collect();
            let sent = inboxes.send(&forms::name(&mailbox)?, batch?).await?;
            let each = |sent: Result<_>| sent.map(|it| forms::sent(&it)).map_err(Fault::from);
            Gave::Sent(sent.into_iter().map(each).collect())
        }
        Call::Receive { mailbox, max_messages, visibility_timeout, wait } => {
            let options = ReceiveOptions::new()
                .with_max_messages(max_messages)
                .with_visibility_timeout(visibility_timeout)
                .with_wait(wait);
            let received = inboxes.receive(&forms::name(&mailbox)?, &options).await?;
            Gave::Deliveries(received.into_iter().map(Into::into).collect())
        }
        Call::Settle(mailbox, batch) => {
            let batch: Result<Vec<Settlement>> =
                batch.into_iter().map(forms::settlement_back).collect();
            let settled = inboxes.settle(&forms::name(&mailbox)?, batch?).await?;
            Gave::Settled(settled.into_iter().map(each).collect())
        }
        Call::Peek(mailbox, request) => {
            let request = forms::peek_back(&request);
            let seen = inboxes.peek(&forms::name(&mailbox)?, &request).await?;
            Gave::Records(seen.into_iter().map(Into::into).collect())
        }
        Call::Stats(mailbox) => {
            Gave::Stats(Box::new(inboxes.stats(&forms::name(&mailbox)?).await?.into()))
        }
        Call::Purge(mailbox) => Gave::Count(inboxes.purge(&forms::name(&mailbox)?).await?),
        Call::Redrive(mailbox, which) => {
            let which = forms::selection_back(&which)?;
            Gave::Count(inboxes.redrive(&forms::name(&mailbox)?, &which).await?)
        }
        Call::DeleteDead(mailbox, which) => {
            let which = forms::selection_back(&which)?;
            Gave::Count(inboxes.delete_dead(&forms::name(&mailbox)?, &which).await?)
        }
        Call::Configure(mailbox, policy) => {
            inboxes.configure(&forms::name(&mailbox)?, policy).await?;
            Gave::Done
        }
        Call::Policy(mailbox) => Gave::Policy(inboxes.policy(&forms::name(&mailbox)?).await?),
        Call::List(after, limit) => {
            let after = after.as_deref().map(forms::name).transpose()?;
            let names = inboxes.list(after.as_ref(), limit).await?;
            Gave::Names(names.iter().map(ToString::to_string).collect())
        }
        Call::Remove(mailbox) => Gave::Yes(inboxes.remove(&forms::name(&mailbox)?).await?),
        Call::Close => {
            inboxes.close().await?;
            Gave::Done
        }
    })
}

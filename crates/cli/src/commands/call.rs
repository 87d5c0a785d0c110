//! `mailbox call`: sends a request and waits for its reply. Invariant: the mailbox that is made for
//! the reply is removed again, also when it is interrupted; where that is forbidden it is named.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mailbox::{
    Delivery, Error, ErrorKind, MessageId, Name, Outgoing, Peek, Phase, ReceiveOptions, Result,
    Settlement, Verdict,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::send::{Source, Start, unanswered};
use crate::args::Call;
use crate::exit::Outcome;
use crate::output::{self, tamed};
use crate::place::{self, Making, Place};
use crate::shown::Delivered;
use crate::signals::Signals;

/// How long one call waits for the reply.
const WAIT: Duration = Duration::from_secs(20);

pub(super) async fn run(args: &Call) -> Result<Outcome> {
    let address = place::read(&args.address)?;
    let mut start = Start::read(Source::of(args.body.as_deref(), None)?)?;
    let mut signals = Signals::new()?;
    let place = Place::open(address, Making::Yes).await?;
    let replies = Name::parse(&format!("reply-{}", Uuid::now_v7()))?;
    let has_asked = AtomicBool::new(false);
    let called = tokio::select! {
        called = call(args, &place, &mut start, (&replies, &has_asked)) => called.map(Some),
        () = signals.next() => Ok(None),
    };
    let mut removed = place.backend.remove(&replies).await.map(|_| ());
    if removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Forbidden) {
        removed = Ok(());
        // There is one as soon as a reply is waited for. An error in JSON stays the only line.
        let is_there = has_asked.load(Ordering::Relaxed);
        if is_there && (called.is_ok() || !args.json) {
            let known_as = place.address_of(&replies);
            output::say(&format!("{known_as} stays behind: to remove it takes admin for reply-*"));
        }
    }
    let closed = place.backend.close().await;
    let Some(reply) = called? else { return Ok(Outcome::Interrupted) };
    show(args, &reply)?;
    removed?;
    closed.map(|()| Outcome::Done)
}

/// Asks, and waits for the reply; says when the request is out.
async fn call(
    args: &Call,
    place: &Place,
    start: &mut Start,
    (replies, has_asked): (&Name, &AtomicBool),
) -> Result<Delivery> {
    let backend = &place.backend;
    let mut request = Outgoing::new(start.rest(backend.abilities().max_payload)?);
    request.attributes = args.attributes.iter().cloned().collect();
    // The name alone: whoever works there may have come by another protocol, where the whole
    // address would be one of somewhere else.
    request.reply_to = Some(replies.to_string());
    let until = Instant::now() + args.timeout;
    let mut sent = backend.send(&place.name, vec![request]).await?;
    let sent = sent.pop().unwrap_or_else(|| Err(unanswered()))?;
    has_asked.store(true, Ordering::Relaxed);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let options = ReceiveOptions::new().with_wait(left.min(WAIT));
        if let Some(reply) = backend.receive(replies, &options).await?.pop() {
            let receipt_handle = reply.receipt_handle.clone();
            let settlement = Settlement { receipt_handle, verdict: Verdict::Acknowledge };
            // The mailbox is removed anyway.
            let _ = backend.settle(replies, vec![settlement]).await;
            return Ok(reply);
        }
        if Instant::now() >= until {
            return Err(too_late(args, place, &sent.id).await);
        }
    }
}

/// Says that there was no reply in time, and what has become of the request.
async fn too_late(args: &Call, place: &Place, id: &MessageId) -> Error {
    let peeked = place.backend.peek(&place.name, &Peek::These(vec![id.clone()])).await;
    let (address, seconds) = (place.known_as(), args.timeout.as_secs_f64());
    let explain = format!("see `mailbox explain {address} {id}`");
    let standing = match peeked.as_deref() {
        Ok([request, ..]) if request.phase == Phase::Dead => {
            let error = request.last_error.as_deref().map(|it| format!(" ({})", tamed(it, 400)));
            let error = error.unwrap_or_default();
            format!("the request is a dead letter already{error}: {explain}")
        }
        Ok([request, ..]) if request.phase == Phase::Invisible => {
            format!("somebody has the request: try a longer --timeout, or {explain}")
        }
        Ok([_, ..]) => format!("the request waits. Does anybody work there? {explain}"),
        Ok([]) => "the request is gone: acknowledged without a reply, or deleted".to_owned(),
        Err(_) => format!("it may still be worked on: {explain}"),
    };
    let message = format!("no reply to {id} within {seconds} s; {standing}");
    Error::new(ErrorKind::Connection, message).with_mailbox(&place.name)
}

fn show(args: &Call, reply: &Delivery) -> Result<()> {
    if args.json {
        return output::print_json_line(&Delivered::new(reply)).map(|_| ());
    }
    let mut bytes = reply.letter.payload.to_vec();
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    output::write(&bytes).map(|_| ())
}

//! `mailbox explain`: the life story of one message, as far as its mailbox knows it.

use std::fmt::Write;

use mailbox::{DeadReason, Phase, Policy, Record, Result};
use serde::Serialize;

use crate::args::Explain;
use crate::exit::Outcome;
use crate::output::{self, tamed};
use crate::place::{self, Making, Place};
use crate::shown::{Seen, counted, preview, time};

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    mailbox: String,
    #[serde(flatten)]
    message: Seen<'a>,
    max_attempts: Option<u32>,
    next: Vec<String>,
}

pub(super) async fn run(args: &Explain) -> Result<Outcome> {
    place::at(&args.address, Making::No, async |place| {
        let records = super::peek::these(place, std::slice::from_ref(&args.id)).await?;
        let policy = place.backend.policy(&place.name).await?;
        for record in &records {
            let (mailbox, next) = (place.known_as(), next(place, record, &policy));
            if args.json {
                let message = Seen::new(record);
                let max_attempts = policy.max_attempts;
                output::print_json(&Document { mailbox, message, max_attempts, next })?;
            } else {
                output::print(&told(&mailbox, record, &policy, &next))?;
            }
        }
        Ok(Outcome::Done)
    })
    .await
}

/// Writing to a string does not fail.
macro_rules! line {
    ($text:expr, $($words:tt)*) => {
        let _ = writeln!($text, $($words)*);
    };
}

fn told(mailbox: &str, record: &Record, policy: &Policy, next: &[String]) -> String {
    let letter = &record.letter;
    let mut text = format!("{} in {mailbox}\n", tamed(&record.id.to_string(), 80));
    line!(text, "  sent       {}", letter.enqueued_at);
    let size = counted(letter.payload.len() as u64, "byte", "bytes");
    line!(text, "  payload    {size}: {}", preview(&letter.payload));
    for (key, value) in &letter.attributes {
        line!(text, "  attribute  {}={}", tamed(key, 40), tamed(value, 80));
    }
    for (what, value) in
        [("reply to", &letter.reply_to), ("key", &letter.idempotency_key), ("group", &letter.group)]
    {
        if let Some(value) = value {
            line!(text, "  {what:<9}  {}", tamed(value, 200));
        }
    }
    let most = policy.max_attempts.map_or_else(String::new, |most| format!(" of at most {most}"));
    line!(text, "  deliveries {}{most}", record.delivery_count);
    line!(text, "  state      {}", standing(record, policy));
    if let Some(error) = &record.last_error {
        line!(text, "  last error {}", tamed(error, 400));
    }
    if let Some(death) = &record.death {
        line!(text, "  died       {}: {}", death.at, cause(death.reason));
    }
    line!(text, "what to do next:");
    for step in next {
        line!(text, "  {step}");
    }
    text
}

/// Whether it was delivered as often as allowed: the next time makes a dead letter of it.
fn is_used_up(record: &Record, policy: &Policy) -> bool {
    record.phase != Phase::Dead
        && policy.max_attempts.is_some_and(|most| record.delivery_count >= most)
}

fn standing(record: &Record, policy: &Policy) -> String {
    let wait = time(record.receivable_in);
    let last = if is_used_up(record, policy) { "; attempts used up" } else { "" };
    let standing = match record.phase {
        Phase::Delayed if !last.is_empty() => format!("delayed: its turn is in {wait}"),
        Phase::Delayed => format!("delayed: receivable in {wait}"),
        Phase::Ready => "ready: waits for somebody to receive it".to_owned(),
        Phase::Invisible => format!("invisible: somebody has it, for {wait} more"),
        Phase::Dead => "dead: a dead letter, not delivered any more".to_owned(),
    };
    standing + last
}

const fn cause(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::MaxAttempts => "max_attempts, it was delivered as often as allowed",
        DeadReason::Expired => "expired, it waited longer than the mailbox keeps messages",
        DeadReason::Rejected => "rejected, a consumer asked for it",
        DeadReason::Integrity => "integrity, its payload is not what was sent",
        DeadReason::Decode => "decode, its body could not be decoded",
    }
}

fn next(place: &Place, record: &Record, policy: &Policy) -> Vec<String> {
    let (address, id) = (place.known_as(), tamed(&record.id.to_string(), 80));
    let is_used_up = is_used_up(record, policy);
    let redrive = format!("mailbox dead redrive {address} {id}    once its trouble is mended");
    match record.phase {
        Phase::Delayed if is_used_up => {
            vec!["nothing: at its next turn it becomes a dead letter; then".to_owned(), redrive]
        }
        Phase::Ready if is_used_up => vec![
            "it becomes a dead letter when somebody receives from this mailbox; then".to_owned(),
            redrive,
        ],
        Phase::Delayed => vec!["nothing: it becomes receivable by itself".to_owned()],
        Phase::Ready => vec![
            format!("mailbox receive {address} --ack"),
            format!("mailbox work {address} -- CMD"),
        ],
        Phase::Invisible => {
            let then = if is_used_up { "becomes a dead letter" } else { "is delivered again" };
            let is_folder = place.address.scheme() == "dir";
            let by_hand = if is_folder { "; or mv it to done/, if a script has it" } else { "" };
            vec![
                format!("wait: if it is not acknowledged in time, it {then}"),
                format!("mailbox ack {address} HANDLE, if it is you who has it{by_hand}"),
            ]
        }
        Phase::Dead => vec![redrive, format!("mailbox dead delete {address} {id}")],
    }
}

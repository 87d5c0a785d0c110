//! `mailbox init`: makes an inbox in a folder, or changes one.

use std::time::Duration;

use mailbox::backends::directory::{DirectoryBackend, InboxSettings, Prepared};
use mailbox::{Address, Backend, Error, ErrorKind, Policy, Result};

use crate::args::Init;
use crate::exit::Outcome;
use crate::{output, place};

pub(super) async fn run(args: &Init) -> Result<Outcome> {
    let address = place::read(&args.address)?;
    if address.scheme() != "dir" {
        let message = format!("{address}: only inboxes are made so; write dir:PATH/NAME");
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
    }
    let backend = open(&address).await?;
    let prepared = prepare(args, &address, &backend).await;
    let closed = backend.close().await;
    let prepared = prepared?;
    closed?;
    show(args, &backend.address(address.name()), prepared)?;
    Ok(Outcome::Done)
}

/// The folder of inboxes that an address leads to.
pub(super) async fn open(address: &Address) -> Result<std::sync::Arc<DirectoryBackend>> {
    address.allow_options(&["shared"])?;
    let mut config = mailbox::backends::directory::DirectoryConfig::default();
    config.shared = address.options().get("shared").is_some_and(|shared| shared == "yes");
    let place = if address.place().is_empty() { "." } else { address.place() };
    DirectoryBackend::open_with(place, config).await
}

async fn prepare(args: &Init, address: &Address, backend: &DirectoryBackend) -> Result<Prepared> {
    let known = backend.policy(address.name()).await?;
    let wanted = InboxSettings {
        sharded: args.shards.as_ref().map(|shards| shards != "0"),
        shell_lease: args.shell_lease,
        done_age: args.keep_done,
        done_count: args.keep_done_count,
        acks: args.acks.as_ref().map(|acks| acks == "yes"),
        policy: policy(args, known),
    };
    backend.prepare(address.name(), wanted).await
}

/// The rules, with those that were said changed; none if nothing was said about them.
fn policy(args: &Init, known: Policy) -> Option<Policy> {
    let mut policy = known.clone();
    let some_time = |time: Duration| (!time.is_zero()).then_some(time);
    if let Some(attempts) = args.attempts {
        policy.max_attempts = (attempts > 0).then_some(attempts);
    }
    if let Some(age) = args.retention {
        policy.retention.ready_age = some_time(age);
    }
    if let Some(age) = args.keep_dead {
        policy.retention.dead_age = some_time(age);
    }
    if let Some(size) = args.max_size {
        policy.max_size = (size > 0).then_some(size);
    }
    (policy != known).then_some(policy)
}

fn show(args: &Init, inbox: &str, prepared: Prepared) -> Result<()> {
    if args.json {
        let document = serde_json::json!({ "inbox": inbox, "outcome": prepared });
        return output::print_json_line(&document).map(|_| ());
    }
    let what = match prepared {
        Prepared::Made => "made",
        Prepared::Changed => "changed",
        Prepared::Unchanged => "is so already",
    };
    output::print(&format!("{inbox}: {what}\n"))
}

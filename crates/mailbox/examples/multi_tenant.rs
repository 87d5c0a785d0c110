//! Tenants that cannot reach each other: each has a namespace of its own, and a resolver that leads
//! nowhere else.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;

use mailbox::backends::memory::MemoryBackend;
use mailbox::resolver::{LruResolver, MemoryFactory};
use mailbox::{ErrorKind, Mailbox, Name, Resolver, Result, SendOptions};

struct Tenant {
    requests: Mailbox<String, String>,
    replies: Mailbox<String>,
}

async fn tenant() -> Result<Tenant> {
    let backend = MemoryBackend::new();
    // Without a resolver of its own a mailbox would follow the address of any namespace that
    // somebody has told: a place cannot be guessed, but it can be passed on.
    let resolver = Arc::new(LruResolver::new(MemoryFactory::on(Arc::clone(&backend))));
    let replies = resolver.resolve("replies").await?;
    let requests = Mailbox::new(backend, Name::parse("requests")?).with_resolver(resolver);
    Ok(Tenant { requests, replies })
}

/// The same worker for every tenant: it replies to wherever the request says.
async fn work(requests: &Mailbox<String, String>) -> Result<()> {
    for request in requests.receive().await? {
        match request.reply(format!("done: {}", request.body()?)).await {
            Ok(_) => request.acknowledge().await?,
            Err(error) => {
                request.reject(error.to_string()).await?;
                return Err(error);
            }
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let (apples, pears) = (tenant().await?, tenant().await?);

    println!("1. both tenants have mailboxes called requests and replies");
    for (name, tenant) in [("apples", &apples), ("pears", &pears)] {
        let options = SendOptions::new().with_reply_to("replies");
        tenant.requests.send_with(format!("report for {name}"), options).await?;
        work(&tenant.requests).await?;
    }

    println!("2. each receives its own reply");
    for (name, tenant) in [("apples", &apples), ("pears", &pears)] {
        let reply = tenant.replies.receive().await?.remove(0);
        println!("   {name}: {}", reply.body()?);
        assert_eq!(reply.body()?, &format!("done: report for {name}"));
        reply.acknowledge().await?;
        assert_eq!(tenant.replies.approximate_count().await?, 0);
    }

    let address = apples.replies.identifier();
    println!("3. pears has learnt an address of apples: {address}");
    let options = SendOptions::new().with_reply_to(address);
    pears.requests.send_with("for your eyes only".to_owned(), options).await?;
    match work(&pears.requests).await {
        Ok(()) => unreachable!("the resolver of pears leads nowhere else"),
        Err(error) => {
            println!("   refused: {error}");
            assert_eq!(error.kind(), ErrorKind::MailboxResolution);
        }
    }
    assert_eq!(apples.replies.approximate_count().await?, 0);
    assert_eq!(pears.requests.stats().await?.dead, 1);

    println!("4. nothing reached apples, and pears has a dead letter");
    Ok(())
}

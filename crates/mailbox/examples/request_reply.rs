//! A client, a worker and their mailboxes, step by step: a reply, a crash, a dead letter and its
//! redrive. `cargo run -p mailbox --example request_reply` runs it.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::{Duration, Instant};

use mailbox::{
    DeadReason, Mailbox, NackOptions, Peek, Policy, ReceiveOptions, Result, Selection, SendOptions,
};

#[tokio::main]
async fn main() -> Result<()> {
    // Requests are names of pictures, replies names of small ones.
    let requests: Mailbox<String, String> = Mailbox::memory("requests")?;
    let replies: Mailbox<String> = Mailbox::memory("replies")?;
    requests.configure(Policy { max_attempts: Some(2), ..Policy::default() }).await?;

    println!("A request and its reply");
    reply(&requests, &replies).await?;
    println!("\nA worker that crashes");
    crash(&requests, &replies).await?;
    println!("\nA request that nobody can handle");
    dead_letter(&requests, &replies).await?;

    let (left, unread) = (requests.stats().await?, replies.stats().await?);
    assert_eq!((left.live(), left.dead, unread.live()), (0, 0, 0));
    println!("\nAll done: no request, no dead letter and no reply is left.");
    Ok(())
}

async fn reply(requests: &Mailbox<String, String>, replies: &Mailbox<String>) -> Result<()> {
    say(1, "client", &format!("sends cat.png, wants the reply at {}", replies.identifier()));
    requests.send_with("cat.png".to_owned(), SendOptions::new().with_reply_to(replies)).await?;
    let request = requests.receive().await?.remove(0);
    say(2, "worker", &format!("receives {}: nobody else can see it now", request.body()?));
    request.reply("small-cat.png".to_owned()).await?;
    say(3, "worker", "replies");
    request.acknowledge().await?;
    say(4, "worker", "acknowledges: the request is deleted");
    let reply = replies.receive().await?.remove(0);
    say(5, "client", &format!("receives {}", reply.body()?));
    assert_eq!(reply.body()?, "small-cat.png");
    reply.acknowledge().await
}

async fn crash(requests: &Mailbox<String, String>, replies: &Mailbox<String>) -> Result<()> {
    requests.send_with("dog.png".to_owned(), SendOptions::new().with_reply_to(replies)).await?;
    say(6, "client", "sends dog.png");
    let one_second = ReceiveOptions::new().with_visibility_timeout(Duration::from_secs(1));
    let request = requests.receive_with(one_second).await?;
    let started = Instant::now();
    say(7, "worker a", "receives it for one second, and crashes");
    drop(request);
    assert!(requests.receive().await?.is_empty());
    say(8, "worker b", "finds nothing yet, and waits");
    let patient = ReceiveOptions::new().with_wait(Duration::from_secs(10));
    let request = requests.receive_with(patient).await?.remove(0);
    let waited = started.elapsed().as_millis();
    say(9, "worker b", &format!("is woken after {waited} ms"));
    say(10, "worker b", &format!("receives it: delivery_count is {}", request.delivery_count()));
    assert_eq!(request.delivery_count(), 2);
    request.reply("small-dog.png".to_owned()).await?;
    request.acknowledge().await?;
    let reply = replies.receive().await?.remove(0);
    say(11, "client", &format!("receives {}: nothing was lost", reply.body()?));
    reply.acknowledge().await
}

async fn dead_letter(requests: &Mailbox<String, String>, replies: &Mailbox<String>) -> Result<()> {
    requests.send_with("owl.png".to_owned(), SendOptions::new().with_reply_to(replies)).await?;
    say(12, "client", "sends owl.png; the mailbox allows two deliveries");
    for step in 13..=14 {
        let request = requests.receive().await?.remove(0);
        say(step, "worker", &format!("fails at delivery {}: nack", request.delivery_count()));
        request.nack_with(NackOptions::new().with_error("not an image")).await?;
    }
    assert!(requests.receive().await?.is_empty());
    let dead = requests.peek(Peek::Dead { after: None, limit: 10 }).await?.remove(0);
    let error = dead.last_error().unwrap_or_default();
    say(15, "mailbox", &format!("keeps {} as a dead letter: {error}", dead.body()?));
    assert_eq!(dead.death().map(|death| death.reason), Some(DeadReason::MaxAttempts));
    requests.redrive(Selection::All).await?;
    say(16, "operator", "repairs the worker and redrives the dead letter");
    let request = requests.receive().await?.remove(0);
    say(17, "worker", &format!("succeeds: delivery_count is {} again", request.delivery_count()));
    request.reply("small-owl.png".to_owned()).await?;
    request.acknowledge().await?;
    let reply = replies.receive().await?.remove(0);
    say(18, "client", &format!("receives {}", reply.body()?));
    reply.acknowledge().await
}

/// Prints one step, in columns.
fn say(step: u32, who: &str, what: &str) {
    println!("{step:>4}  {who:<8}  {what}");
}

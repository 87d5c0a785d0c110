//! Sends a job, fails at it once, then gets it done. The README shows this file.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use mailbox::Mailbox;

#[tokio::main]
async fn main() -> mailbox::Result<()> {
    let jobs: Mailbox<String> = Mailbox::memory("jobs")?;
    jobs.send("resize cat.png".to_owned()).await?;

    for message in jobs.receive().await? {
        println!("delivery {}: {}", message.delivery_count(), message.body()?);
        message.nack().await?; // not done: give it back
    }
    for message in jobs.receive().await? {
        println!("delivery {}: {}", message.delivery_count(), message.body()?);
        assert_eq!(message.delivery_count(), 2);
        message.acknowledge().await?; // done: delete it
    }

    assert_eq!(jobs.approximate_count().await?, 0);
    println!("nothing is left");
    Ok(())
}

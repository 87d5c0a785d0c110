//! Retries that wait longer each time: three hours of outage in milliseconds, on a manual clock.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use mailbox::Mailbox;
use mailbox::testing::ManualClock;

const MINUTE: Duration = Duration::from_secs(60);

/// One minute more after each delivery, up to fifteen.
fn delay_after(delivery_count: u32) -> Duration {
    MINUTE * delivery_count.min(15)
}

#[tokio::main]
async fn main() -> mailbox::Result<()> {
    let clock = ManualClock::new();
    let invoices: Mailbox<String> = Mailbox::memory_with_clock("invoices", clock.clock())?;
    let back_up_at = 180 * MINUTE;

    println!("the bank is down for {} minutes", back_up_at.as_secs() / 60);
    invoices.send("invoice 4711".to_owned()).await?;

    let attempts = loop {
        let message = invoices.receive().await?.remove(0);
        let count = message.delivery_count();
        let minute = clock.elapsed().as_secs() / 60;
        if clock.elapsed() >= back_up_at {
            println!("minute {minute:>3}: delivery {count:>2} succeeds");
            message.acknowledge().await?;
            break count;
        }

        let delay = delay_after(count);
        println!(
            "minute {minute:>3}: delivery {count:>2} fails, again in {:>2} minutes",
            delay.as_secs() / 60
        );
        message.nack_in(delay).await?;

        // Not a second too early.
        clock.advance(delay - Duration::from_secs(1));
        assert!(invoices.receive().await?.is_empty());
        clock.advance(Duration::from_secs(1));
    };

    // 1 + 2 + ... + 15 minutes are two hours; four more steps of 15 minutes make three.
    assert_eq!(attempts, 20);
    assert_eq!(clock.elapsed(), back_up_at);
    assert_eq!(invoices.approximate_count().await?, 0);
    println!("delivered at attempt {attempts}; one attempt a minute would have been 181");
    Ok(())
}

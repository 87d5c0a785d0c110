//! What becomes of messages that cannot be handled: they are put aside, never dropped, and come
//! back only when somebody says so.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use mailbox::{DeadReason, Mailbox, NackOptions, Peek, Peeked, Policy, ReceiveOptions, Selection};

#[tokio::main]
async fn main() -> mailbox::Result<()> {
    let orders: Mailbox<String> = Mailbox::memory("orders")?;

    println!("1. policy: two deliveries at most");
    orders.configure(Policy { max_attempts: Some(2), ..Policy::default() }).await?;

    println!("2. send three orders");
    for order in ["3 apples", "out-of-stock pears", "minus 5 plums"] {
        orders.send(order.to_owned()).await?;
    }

    println!("3. work until nothing is left");
    loop {
        let received = orders.receive_with(ReceiveOptions::new().with_max_messages(10)).await?;
        if received.is_empty() {
            break;
        }
        for message in received {
            let (order, count) = (message.body()?, message.delivery_count());
            if order.starts_with("minus") {
                println!("   {order}: delivery {count}, rejected: it can never work");
                message.reject("a quantity is positive").await?;
            } else if order.starts_with("out-of-stock") {
                println!("   {order}: delivery {count}, nacked: it may work later");
                message.nack_with(NackOptions::new().with_error("none on the shelf")).await?;
            } else {
                println!("   {order}: delivery {count}, acknowledged");
                message.acknowledge().await?;
            }
        }
    }

    println!("4. list the dead letters");
    let dead = orders.peek(Peek::Dead { after: None, limit: 10 }).await?;
    for letter in &dead {
        let reason = letter.death().map_or("none", |death| death.reason.as_str());
        let error = letter.last_error().unwrap_or_default();
        let count = letter.delivery_count();
        println!("   {}: {reason} at delivery {count} ({error})", letter.body()?);
    }
    let reason = |letter: &Peeked<String>| letter.death().map(|death| death.reason);
    let reasons: Vec<_> = dead.iter().filter_map(reason).collect();
    assert_eq!(reasons, [DeadReason::Rejected, DeadReason::MaxAttempts]);

    println!("5. pears have arrived: redrive what ran out of attempts");
    let redriven = orders.redrive(Selection::Reason(DeadReason::MaxAttempts)).await?;
    let message = orders.receive().await?.remove(0);
    println!("   {}: delivery {}, acknowledged", message.body()?, message.delivery_count());
    assert_eq!((redriven, message.delivery_count()), (1, 1));
    message.acknowledge().await?;

    println!("6. delete the other one");
    let deleted = orders.delete_dead(Selection::These(vec![dead[0].id().clone()])).await?;
    assert_eq!(deleted, 1);

    let stats = orders.stats().await?;
    println!("   {} waiting, {} dead", stats.live(), stats.dead);
    assert_eq!((stats.live(), stats.dead), (0, 0));
    Ok(())
}

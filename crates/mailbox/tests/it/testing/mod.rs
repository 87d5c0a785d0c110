//! The doubles of section T: what each promises, through the ordinary mailbox that it holds.

mod collecting;
mod fake;
mod injecting;
mod null;
mod resolver;

use std::future::Future;
use std::time::Duration;

use mailbox::{ErrorKind, ReceiveOptions, Result};

/// Receives that wait for `seconds`.
fn patient(seconds: u64) -> ReceiveOptions {
    ReceiveOptions::new().with_wait(Duration::from_secs(seconds))
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("this should have failed"),
        Err(error) => error.kind(),
    }
}

/// Runs `waiting` until it waits, then `then`; gives what `waiting` ends with. Fails if nobody
/// wakes it.
async fn meanwhile<T>(waiting: impl Future<Output = T>, then: impl Future<Output = ()>) -> T {
    let both = async { tokio::join!(biased; waiting, then) };
    let (result, ()) =
        tokio::time::timeout(Duration::from_secs(30), both).await.expect("it was woken");
    result
}

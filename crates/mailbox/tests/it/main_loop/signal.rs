//! A group in a process that is told to end, on a real clock.
#![cfg(unix)]

use std::process::Command;
use std::time::Duration;

use mailbox::main_loop::{LoopEnd, LoopGroup, MainLoop};

use super::{ask, echo, handler, local, memory, until};

/// Sends the signal to this very process. That is safe because the group listens before it runs
/// its loops; if it did not, the test would not fail but end, which a test runner reports as well.
#[tokio::test]
async fn p5_sigterm_stops_every_loop_of_a_group() {
    let (idle, _) = memory();
    let (requests, replies) = local();
    let slow = handler(|text, _| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(text)
    });
    let (first, second) = (MainLoop::new(idle, echo()), MainLoop::new(requests.clone(), slow));
    ask(&requests, &replies, "hello").await;
    let group = LoopGroup::new().with(&first).with(&second);
    let task = tokio::spawn(group.run_until_signal());
    until(|| first.health().running && second.health().in_flight == 1).await;

    let pid = std::process::id().to_string();
    let sent = Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status().unwrap();
    assert!(sent.success());
    let ended = tokio::time::timeout(Duration::from_secs(10), task).await;
    let ends = ended.expect("it ends in time").unwrap().unwrap();
    assert!(ends.iter().all(|(_, end)| *end == LoopEnd::Stopped), "{ends:?}");
    assert_eq!(second.health().handled, 1, "drained");
}

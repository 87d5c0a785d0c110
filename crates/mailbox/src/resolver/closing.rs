//! Whatever leaves a resolver's cache is closed, and nothing of it is dropped under the lock (R3).

use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;
use crate::resolver::{Factory, LruConfig, LruResolver, Resolver};
use crate::testing::ManualClock;

const TTL: Duration = Duration::from_secs(60);

fn config(clock: &ManualClock, capacity: usize) -> LruConfig {
    let capacity = NonZeroUsize::new(capacity).unwrap();
    LruConfig::default().with_clock(clock.clock()).with_ttl(TTL).with_capacity(capacity)
}

/// Makes mailboxes with a memory backend each, until it is told to fail.
#[derive(Debug, Default)]
struct OwnBackends(Mutex<bool>);

#[async_trait]
impl Factory<u32> for OwnBackends {
    async fn create(&self, identifier: &str) -> Result<Mailbox<u32>> {
        if *self.0.lock() {
            return Err(Error::new(ErrorKind::Connection, "as asked"));
        }
        Mailbox::memory(identifier)
    }
}

/// Resolves as many; gives them with handles of another origin, which show what becomes of their
/// backends.
async fn resolve(
    resolver: &LruResolver<u32>,
    numbers: std::ops::Range<usize>,
) -> (Vec<Mailbox<u32>>, Vec<Mailbox<u32>>) {
    let (mut held, mut witnesses) = (Vec::new(), Vec::new());
    for number in numbers {
        let mailbox = resolver.resolve(&number.to_string()).await.unwrap();
        witnesses.push(Mailbox::open(mailbox.identifier()).await.unwrap());
        held.push(mailbox);
    }
    (held, witnesses)
}

async fn closed(witnesses: &[Mailbox<u32>]) -> usize {
    let mut closed = 0;
    for witness in witnesses {
        match witness.send(1).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Closed => closed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    closed
}

#[tokio::test]
async fn a_health_check_closes_those_in_line_before_it_evicts_more() {
    let clock = ManualClock::new();
    let resolver = LruResolver::with_config(OwnBackends::default(), config(&clock, 64));
    let (held, first) = resolve(&resolver, 0..64).await;
    clock.advance(TTL);
    resolver.check_health().await;
    assert_eq!((resolver.stats().evictions, closed(&first).await), (64, 0));

    let (_, second) = resolve(&resolver, 64..128).await;
    drop(held);
    clock.advance(TTL);
    resolver.check_health().await;
    assert_eq!(resolver.stats().evictions, 128);
    assert_eq!((closed(&first).await, closed(&second).await), (64, 64));
}

#[tokio::test]
async fn misses_close_those_in_line_before_they_displace_them() {
    let clock = ManualClock::new();
    let resolver = LruResolver::with_config(OwnBackends::default(), config(&clock, 64));
    let (mut held, mut witnesses) = resolve(&resolver, 0..128).await;
    // The line is full. Whatever is held goes on working, whatever is not is closed in the end.
    drop(held.drain(..64));
    let (second, more) = resolve(&resolver, 128..192).await;
    assert_eq!(closed(&witnesses).await, 64);
    held.extend(second);
    witnesses.extend(more);
    for mailbox in &held {
        mailbox.send(1).await.unwrap();
    }
    drop(held);
    clock.advance(TTL);
    resolver.check_health().await;
    assert_eq!((closed(&witnesses).await, resolver.stats().cached), (192, 0));
}

#[tokio::test]
async fn one_that_is_too_old_is_closed_even_if_no_other_can_be_made() {
    let clock = ManualClock::new();
    let factory = Arc::new(OwnBackends::default());
    let resolver = LruResolver::with_config(Arc::clone(&factory), config(&clock, 64));
    let (_, witnesses) = resolve(&resolver, 0..1).await;
    clock.advance(TTL);
    *factory.0.lock() = true;
    resolver.resolve("0").await.unwrap_err();
    assert_eq!((closed(&witnesses).await, resolver.stats().cached), (1, 0));
}

/// A body whose end asks the resolver something, and notes whether it was answered.
struct Nosy {
    resolver: Weak<LruResolver<Self>>,
    answered: Arc<Mutex<Vec<bool>>>,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        let Some(resolver) = self.resolver.upgrade() else { return };
        // From another thread: under the lock this one would wait for itself.
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(resolver.stats().evictions));
        self.answered.lock().push(told.recv_timeout(Duration::from_secs(5)).is_ok());
    }
}

#[derive(Debug)]
struct Locals;

#[async_trait]
impl Factory<Nosy> for Locals {
    async fn create(&self, identifier: &str) -> Result<Mailbox<Nosy>> {
        Mailbox::local(identifier)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_dropped_while_the_lock_is_held() {
    let clock = ManualClock::new();
    let resolver = Arc::new(LruResolver::with_config(Locals, config(&clock, 64)));
    let answered = Arc::new(Mutex::new(Vec::new()));
    let mut held = Vec::new();
    for number in 0..128 {
        let mailbox = resolver.resolve(&number.to_string()).await.unwrap();
        if number == 0 {
            let resolver = Arc::downgrade(&resolver);
            mailbox.send(Nosy { resolver, answered: Arc::clone(&answered) }).await.unwrap();
        }
        held.push(mailbox);
    }
    // Half of them fill the line, and now nobody else has those: the first one makes room.
    drop(held.drain(..64));
    held.push(resolver.resolve("one-more").await.unwrap());
    assert_eq!(*answered.lock(), [true]);
}

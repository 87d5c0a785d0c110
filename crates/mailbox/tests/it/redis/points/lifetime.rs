//! Point 9: that a mailbox goes by itself when nobody uses it is shown, warned of, and can be
//! switched off; dead letters and rules stay in any case.

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, DeadReason, Mailbox, Policy, Verdict};

use crate::redis::{Place, jobs, seconds, until, url};

/// Three days.
const SHARED: u64 = 259_200;

fn warning(backend: &RedisBackend) -> Option<&String> {
    backend.warnings().iter().find(|warning| warning.contains("ttl=0"))
}

#[tokio::test]
async fn point_9_how_long_a_mailbox_stays_is_shown_and_warned_of() {
    let place = Place::new().await;
    let warning = warning(&place.backend).expect("it is said when it is opened");
    assert!(warning.contains("259200 s"), "{warning}");
    assert_eq!(place.backend.stats(&jobs()).await.unwrap().expires_in, None, "nothing is there");
    place.send("1").await;
    let left = place.backend.stats(&jobs()).await.unwrap().expires_in.unwrap();
    assert!((SHARED - 60..=SHARED).contains(&left.as_secs()), "{left:?}");
}

#[tokio::test]
async fn point_9_a_mailbox_that_nobody_uses_goes_and_dead_letters_and_rules_stay() {
    let place = Place::with(RedisConfig::default().with_ttl(Some(seconds(1)))).await;
    place.backend.configure(&jobs(), Policy::default()).await.unwrap();
    place.send("1").await;
    let taken = place.receive(seconds(30)).await.unwrap();
    let (reason, error) = (DeadReason::Rejected, None);
    place.settle(&taken, Verdict::Reject { reason, error }).await.unwrap();
    place.send("2").await;
    assert!(place.backend.stats(&jobs()).await.unwrap().expires_in.unwrap() <= seconds(1));
    until("it goes", || async { place.parts() == ["dead", "graves", "rules"] }).await;
    let stats = place.backend.stats(&jobs()).await.unwrap();
    assert_eq!((stats.live(), stats.dead, stats.expires_in), (0, 1, None));
}

#[tokio::test]
async fn point_9_with_a_ttl_of_0_a_mailbox_stays() {
    let place = Place::with(RedisConfig::default().with_ttl(None)).await;
    assert_eq!(warning(&place.backend), None);
    let address = format!("{}/jobs?ttl=0", url(&place.node.address()));
    let mailbox: Mailbox<u32> = Mailbox::open(&address).await.unwrap();
    mailbox.send(1).await.unwrap();
    assert_eq!(mailbox.stats().await.unwrap().expires_in, None);
    assert_eq!(place.ttl("data"), -1);
}

use std::sync::Arc;

use mailbox::testing::FakeResolver;
use mailbox::{ErrorKind, Mailbox, Resolver, SendOptions};

use super::kind;

#[tokio::test]
async fn a_fake_resolver_makes_a_collecting_mailbox_for_each_identifier() {
    let resolver: FakeResolver<u32> = FakeResolver::new();
    assert!(resolver.mailbox("a").is_none());
    resolver.resolve("a").await.unwrap().send(1).await.unwrap();
    resolver.resolve("a").await.unwrap().send(2).await.unwrap();
    resolver.resolve("b").await.unwrap().send(3).await.unwrap();
    assert_eq!(resolver.mailbox("a").unwrap().sent().unwrap(), [1, 2]);
    assert_eq!(resolver.mailbox("b").unwrap().sent().unwrap(), [3]);
    assert_eq!(resolver.resolution_log(), ["a", "a", "b"]);
}

#[tokio::test]
async fn identifiers_that_are_no_names_resolve_too() {
    let resolver: FakeResolver<u32> = FakeResolver::new();
    let address = "redis://example.org/replies?db=3";
    let mailbox = resolver.resolve(address).await.unwrap();
    assert_eq!(mailbox.identifier(), address);
    mailbox.send(1).await.unwrap();
    assert_eq!(resolver.mailbox(address).unwrap().sent().unwrap(), [1]);
}

#[tokio::test]
async fn it_fails_on_what_it_is_told_to_and_logs_that_too() {
    let resolver: FakeResolver<u32> = FakeResolver::new();
    resolver.fail_on("gone");
    let error = resolver.resolve("gone").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MailboxResolution);
    assert_eq!(error.identifier(), Some("gone"));
    assert!(resolver.resolve_optional("gone").await.unwrap().is_none());
    assert!(resolver.resolve_optional("there").await.unwrap().is_some());
    assert!(resolver.mailbox("gone").is_none());
    resolver.stop_failing_on("gone");
    resolver.resolve("gone").await.unwrap();
    assert_eq!(resolver.resolution_log(), ["gone", "gone", "there", "gone"]);
}

#[tokio::test]
async fn replies_of_a_worker_go_where_the_test_can_see_them() {
    let resolver: FakeResolver<String> = FakeResolver::new();
    let requests: Mailbox<u32, String> =
        Mailbox::memory("requests").unwrap().with_resolver(Arc::new(resolver.clone()));
    for client in ["client-1", "client-2", "gone"] {
        let options = SendOptions::new().with_reply_to(client);
        requests.send_with(1, options).await.unwrap();
    }
    resolver.fail_on("gone");
    for client in ["client-1", "client-2"] {
        let request = requests.receive().await.unwrap().remove(0);
        request.reply("done".to_owned()).await.unwrap();
        assert_eq!(resolver.mailbox(client).unwrap().sent().unwrap(), ["done"]);
    }
    let request = requests.receive().await.unwrap().remove(0);
    assert_eq!(kind(request.reply("?".to_owned()).await), ErrorKind::MailboxResolution);
}

#[tokio::test]
async fn a_resolved_mailbox_can_be_made_to_fail() {
    let resolver: FakeResolver<u32> = FakeResolver::new();
    let resolved = resolver.resolve("replies").await.unwrap();
    resolver.mailbox("replies").unwrap().set_connection_error("down");
    assert_eq!(kind(resolved.send(1).await), ErrorKind::Connection);
}

#[tokio::test]
async fn what_it_remembers_is_bounded() {
    let resolver: FakeResolver<u32> = FakeResolver::new();
    for number in 0..1_000 {
        resolver.resolve(&format!("client-{number}")).await.unwrap();
    }
    assert_eq!(kind(resolver.resolve("one-more").await), ErrorKind::Saturated);
    for _ in 1_001..10_000 {
        resolver.resolve("client-0").await.unwrap();
    }
    assert_eq!(resolver.resolution_log().len(), 10_000);
    assert_eq!(kind(resolver.resolve("client-0").await), ErrorKind::Saturated);
    assert_eq!(resolver.resolution_log().len(), 10_000);
}

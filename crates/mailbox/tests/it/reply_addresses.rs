//! Where a stranger's identifier may lead, and what may be told about it (R4).

use std::sync::Arc;

use mailbox::backends::memory::MemoryBackend;
use mailbox::resolver::{
    AllowList, CompositeResolver, Factory, LruResolver, MemoryFactory, RegistryResolver,
    SameBackendResolver, UrlFactory,
};
use mailbox::{Backend, ErrorKind, Mailbox, Name, Resolver, Result, SendOptions};

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

const RESOLUTION: Option<ErrorKind> = Some(ErrorKind::MailboxResolution);

#[tokio::test]
async fn tenants_cannot_reach_each_other() {
    let tenant = || {
        let backend = MemoryBackend::new();
        let factory = MemoryFactory::<String>::on(Arc::clone(&backend));
        let resolver = CompositeResolver::new(RegistryResolver::default()).with_factory(factory);
        (backend, Arc::new(resolver))
    };
    let ((backend_a, a), (_, b)) = (tenant(), tenant());
    let in_a = a.resolve("replies").await.unwrap();
    in_a.send("for a only".into()).await.unwrap();
    assert_eq!(b.resolve("replies").await.unwrap().approximate_count().await.unwrap(), 0);

    // Not by its address either, which leads there for its own tenant.
    let address = in_a.identifier();
    assert_eq!(a.resolve(address).await.unwrap().approximate_count().await.unwrap(), 1);
    assert_eq!(kind(b.resolve(address).await), RESOLUTION);
    for hostile in ["memory://replies", "memory:///replies", "a/replies", "m1/replies"] {
        assert_eq!(kind(b.resolve(hostile).await), RESOLUTION, "{hostile}");
    }

    // Nor through a message.
    let requests: Mailbox<u32, String> =
        Mailbox::<u32, String>::memory("requests").unwrap().with_resolver(b);
    requests.send_with(1, SendOptions::new().with_reply_to(address.to_owned())).await.unwrap();
    let message = requests.receive().await.unwrap().remove(0);
    assert_eq!(kind(message.reply("from b".into()).await), RESOLUTION);
    let name = Name::parse("replies").unwrap();
    assert_eq!(backend_a.stats(&name).await.unwrap().live(), 1);
}

#[tokio::test]
async fn an_address_is_opened_only_if_the_list_allows_it() {
    let other = MemoryBackend::new();
    let there = other.address(&Name::parse("replies").unwrap());
    let place = there.split('/').nth(2).unwrap();

    let nothing: UrlFactory<u32> = UrlFactory::new(AllowList::new());
    assert_eq!(kind(nothing.create(&there).await), RESOLUTION);

    let allowed = AllowList::new().allow_host("memory", place).unwrap();
    let resolver = LruResolver::new(UrlFactory::<u32>::new(allowed));
    resolver.resolve(&there).await.unwrap().send(1).await.unwrap();
    assert_eq!(other.stats(&Name::parse("replies").unwrap()).await.unwrap().live(), 1);
    for refused in ["memory://replies", "memory://elsewhere/replies", "replies", ""] {
        assert_eq!(kind(resolver.resolve(refused).await), RESOLUTION, "{refused}");
    }
}

/// Receives a request that names `reply_to`, and replies.
async fn reply(requests: &Mailbox<u32, u32>, reply_to: &str) -> Result<()> {
    requests.send_with(1, SendOptions::new().with_reply_to(reply_to)).await?;
    let message = requests.receive().await?.remove(0);
    let replied = message.reply(2).await;
    message.acknowledge().await?;
    replied.map(|_| ())
}

#[tokio::test]
async fn a_private_mailbox_does_not_lead_to_the_namespace_that_the_process_shares() {
    let payments: Mailbox<u32> = Mailbox::open("memory://payments").await.unwrap();
    let requests: Mailbox<u32, u32> = Mailbox::memory("requests").unwrap();
    for address in ["memory://payments", "memory:///payments", "memory:/payments"] {
        let error = reply(&requests, address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MailboxResolution, "{address}");
        assert_eq!(error.identifier(), Some(address));
        assert!(error.to_string().contains("give the mailbox a resolver"), "{error}");
    }
    assert_eq!(payments.approximate_count().await.unwrap(), 0);

    let allowed = AllowList::new().allow_scheme("memory").unwrap();
    let requests = requests.with_resolver(LruResolver::new(UrlFactory::new(allowed)));
    reply(&requests, "memory://payments").await.unwrap();
    assert_eq!(payments.approximate_count().await.unwrap(), 1);
}

#[tokio::test]
async fn a_mailbox_leads_to_its_own_backend_and_to_places_that_it_is_told() {
    let shared: Mailbox<u32, u32> = Mailbox::open("memory://own-requests").await.unwrap();
    let shared_replies: Mailbox<u32> = Mailbox::open("memory://own-replies").await.unwrap();
    for own in ["own-replies", "memory://own-replies"] {
        reply(&shared, own).await.unwrap();
    }
    assert_eq!(shared_replies.approximate_count().await.unwrap(), 2);

    let backend = MemoryBackend::new();
    let private: Mailbox<u32, u32> = backend.mailbox("requests").unwrap();
    let replies: Mailbox<u32> = backend.mailbox("replies").unwrap();
    for own in ["replies", replies.identifier()] {
        reply(&private, own).await.unwrap();
    }
    // From elsewhere too, for whoever has the address.
    reply(&shared, replies.identifier()).await.unwrap();
    reply(&Mailbox::memory("other").unwrap(), replies.identifier()).await.unwrap();
    assert_eq!(replies.approximate_count().await.unwrap(), 4);
}

#[tokio::test]
async fn an_address_that_leads_nowhere_or_needs_another_build_cannot_be_resolved() {
    let allowed = AllowList::new().allow_scheme("memory").unwrap();
    let allowed = allowed.allow_scheme("sqs").unwrap().allow_scheme("gopher").unwrap();
    let factory: UrlFactory<u32> = UrlFactory::new(allowed);
    for address in ["memory://gone/x", "sqs://region/x", "gopher://localhost/x"] {
        let error = factory.create(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MailboxResolution, "{address}");
        assert_eq!(error.identifier(), Some(address));
    }
}

#[tokio::test]
async fn no_error_about_an_address_shows_its_password() {
    let requests = MemoryBackend::new();
    let resolvers: Vec<Box<dyn Resolver<u32>>> = vec![
        Box::new(RegistryResolver::default()),
        Box::new(SameBackendResolver::new(requests)),
        Box::new(LruResolver::new(MemoryFactory::new())),
        Box::new(LruResolver::new(UrlFactory::new(AllowList::new()))),
        Box::new(LruResolver::new(UrlFactory::new(
            AllowList::new().allow_scheme("memory").unwrap().allow_scheme("redis").unwrap(),
        ))),
    ];
    for address in [
        "redis://user:hunter2@127.0.0.1:1/x",
        "redis://user:hunter2@127.0.0.1:1/",
        "redis://user:hunter2@127.0.0.1:1/a b",
        "redis://user:a/hunter2@127.0.0.1:1",
        "redis://user:a?hunter2@127.0.0.1:1/x",
        "redis://user:a?b=hunter2@127.0.0.1:1/x",
        "redis://user:hunter2?a=b@127.0.0.1:1/x",
        "redis://hunter2@127.0.0.1:1/x",
        "redis://127.0.0.1:1/x?password=hunter2",
        "redis://127.0.0.1:1/x?hunter2",
        "REDIS://user:hunter2@127.0.0.1:1/x",
        "memory://user:hunter2@127.0.0.1:1/x",
        "user:hunter2@127.0.0.1:1",
        "//user:hunter2@127.0.0.1:1/x",
        "gopher://user:hunter2@127.0.0.1:1/x",
    ] {
        for resolver in &resolvers {
            let error = resolver.resolve(address).await.unwrap_err();
            let shown = format!("{error} {error:?} {:?}", error.identifier());
            // One of them may follow the first, and nobody listens there.
            let is_tried = error.kind() == ErrorKind::Connection && address.starts_with("redis:");
            let is_refused = error.kind() == ErrorKind::MailboxResolution;
            assert!(is_tried || is_refused, "{address}: {error:?}");
            assert!(!shown.contains("hunter2"), "{address}: {shown}");
        }
    }
}

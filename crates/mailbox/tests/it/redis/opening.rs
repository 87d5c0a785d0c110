//! What is refused when a backend is opened, before anything is asked of its mailboxes; and that
//! what was opened shows no password.

use std::sync::Arc;

use mailbox::backends::redis::{RedisBackend, RedisConfig, RedisMailboxFactory, SentinelLogin};
use mailbox::{Backend, ErrorKind, Mailbox};
use mailbox_redis_servers::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::stage::{expect, url};
use super::{jobs, send};

#[tokio::test]
async fn a_prefix_that_could_be_read_as_something_else_is_refused() {
    let node = Node::start(&[]).unwrap();
    let long = "a".repeat(129);
    let refused =
        ["queue:", "a:queue:b", "{", "a}", "a&b", "50%", "#", "a?", "a b", "a\n", "\u{e4}", &long];
    for prefix in refused {
        let config = RedisConfig::default().with_prefix(prefix);
        let error = RedisBackend::open_with(&url(&node), config).await.unwrap_err();
        expect(&error, ErrorKind::InvalidParameter, "prefix", &[]);
        assert_eq!(error.field(), Some("prefix"), "{prefix:?}");
    }
    // By an address too, as far as an address can say it.
    for prefix in ["queue:", "a:queue:b", "a{b", "a}", "50%25", "a?"] {
        let address = format!("{}/jobs?prefix={prefix}", url(&node));
        let error = Mailbox::<u32>::open(&address).await.unwrap_err();
        expect(&error, ErrorKind::InvalidParameter, "prefix", &[]);
    }
    for prefix in ["", "queue", "tenant-a:", "a/b|c=[*]!", &long[1..]] {
        let config = RedisConfig::default().with_prefix(prefix);
        let backend = RedisBackend::open_with(&url(&node), config).await.unwrap();
        send(&*backend, mailbox::Outgoing::new("1".into())).await.unwrap();
        assert_eq!(backend.list(None, 10).await.unwrap(), [jobs()], "{prefix:?}");
    }
}

#[tokio::test]
async fn what_was_opened_shows_no_password() {
    let node = Node::start(&[("requirepass", "sesame%1")]).unwrap();
    let mut config = RedisConfig::default();
    config.sentinel_login = Some(SentinelLogin::new(Some("anna".into()), "sesame-2".into()));
    let said = format!("{config:?} {config:#?}");
    let at = format!("redis://:sesame%251@{}", node.address());
    let backend = RedisBackend::open_with(&at, config).await.unwrap();
    let factory = RedisMailboxFactory::<u32>::on(Arc::clone(&backend));
    let mailbox: Mailbox<u32> = Mailbox::open(&format!("{at}/jobs")).await.unwrap();
    mailbox.send(1).await.unwrap();
    let said = format!(
        "{said} {backend:?} {backend:#?} {factory:?} {mailbox:?} {} {} {:?}",
        backend.address(&jobs()),
        mailbox.identifier(),
        backend.warnings(),
    );
    assert!(said.contains("anna") && said.contains(&node.address()), "{said}");
    assert!(!said.contains("sesame"), "{said}");
}

/// Somebody before a server who says that it is of another version, as long as its own.
async fn pretender(node: &Node, version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, server) = (listener.local_addr().unwrap().to_string(), node.address());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            // It ends when one of them has gone.
            tokio::spawn(async move { drop(pretend(client, server, version).await) });
        }
    });
    address
}

async fn pretend(
    mut client: TcpStream,
    mut server: TcpStream,
    version: &str,
) -> std::io::Result<()> {
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let count = read?;
                server.write_all(&request[..count]).await?;
                if count == 0 {
                    return Ok(());
                }
            }
            read = server.read(&mut reply) => {
                let count = read?;
                let says = b"redis_version:";
                let at = reply[..count].windows(says.len()).position(|part| part == says);
                if let Some(at) = at {
                    let at = at + says.len();
                    reply[at..at + version.len()].copy_from_slice(version.as_bytes());
                }
                client.write_all(&reply[..count]).await?;
                if count == 0 {
                    return Ok(());
                }
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_and_says_which_it_is() {
    let node = Node::start(&[]).unwrap();
    for (version, shown) in [("6.2", "6.2"), ("5.0", "5.0"), ("0.0", "0.0"), ("abc", "0.0")] {
        let address = pretender(&node, version).await;
        let error = RedisBackend::open(&super::url(&address)).await.unwrap_err();
        expect(&error, ErrorKind::Unsupported, &address, &[]);
        assert!(error.to_string().contains(shown), "{error}");
    }
    for version in ["7.0", "7.4", "8.0"] {
        let address = pretender(&node, version).await;
        let backend = RedisBackend::open(&super::url(&address)).await.unwrap();
        send(&*backend, mailbox::Outgoing::new("1".into())).await.unwrap();
    }
}

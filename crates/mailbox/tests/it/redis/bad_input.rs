//! Servers that cannot be used like this: each is a typed error that names the server and tells no
//! password, and says so soon.

use std::time::{Duration, Instant};

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Durability, Error, ErrorKind, Mailbox, Retry};
use mailbox_redis_servers::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::stage::{Stage, acknowledge, contents, expect, expect_same, receive, run, send, url};

/// How long it may take until somebody is told that a server cannot be used.
const TOLD: Duration = Duration::from_secs(6);

async fn refused(url: &str) -> Error {
    refused_with(url, RedisConfig::default()).await
}

async fn refused_with(url: &str, config: RedisConfig) -> Error {
    let opened = timeout(TOLD, RedisBackend::open_with(url, config)).await;
    opened.expect("it is told in time").expect_err("it cannot be used like this")
}

/// A port that nobody listens on.
async fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Somebody who is not Redis, and says the same to everybody, or nothing.
async fn stranger(says: Option<&'static [u8]>, again: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some(says) = says else {
                silent.push(stream);
                continue;
            };
            tokio::spawn(async move {
                let mut heard = [0; 4096];
                while let Ok(count) = stream.read(&mut heard).await
                    && count > 0
                {
                    // As often as it was asked something.
                    let lines = heard[..count].split(|byte| *byte == b'\n');
                    let asked = lines.filter(|line| line.starts_with(b"*")).count();
                    let says = says.repeat(if again { asked } else { 1 });
                    if stream.write_all(&says).await.is_err() || !again {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_wrong_password_and_none_are_unauthorized_and_the_right_one_is_not() {
    let node = Node::start(&[("requirepass", "sesame-right")]).unwrap();
    let address = node.address();
    for login in ["", ":sesame-wrong@", "anna:sesame-wrong@", "default:sesame-wrong@"] {
        let error = refused(&format!("redis://{login}{address}")).await;
        expect(&error, ErrorKind::Unauthorized, &address, &["sesame"]);
        assert_eq!(error.retry(), Retry::Never);
        let address = format!("redis://{login}{}/jobs", node.address());
        let error = Mailbox::<String>::open(&address).await.unwrap_err();
        expect(&error, ErrorKind::Unauthorized, &node.address(), &["sesame"]);
    }
    let backend = RedisBackend::open(&format!("redis://:sesame-right@{address}")).await.unwrap();
    assert!(!format!("{backend:?}").contains("sesame"), "{backend:?}");
    send(&backend, "jobs", "first").await.unwrap();
    // The password changes while it is in use.
    let mut plain = node.connect().unwrap();
    run::<()>(&mut plain, &["CONFIG", "SET", "requirepass", "sesame-new"]);
    run::<u32>(&mut plain, &["CLIENT", "KILL", "TYPE", "normal"]);
    let error = loop {
        // The connection that was cut is in doubt first.
        match send(&backend, "jobs", "second").await {
            Err(error) if error.kind() == ErrorKind::Connection => {}
            other => break other.expect_err("the password is another"),
        }
    };
    expect(&error, ErrorKind::Unauthorized, &address, &["sesame"]);
    run::<()>(&mut plain, &["CONFIG", "SET", "requirepass", "sesame-right"]);
    send(&backend, "jobs", "third").await.unwrap();
    let taken = receive(&backend, "jobs", Duration::ZERO).await.unwrap();
    assert_eq!(taken.len(), 2, "{taken:?}");
}

#[tokio::test]
async fn what_a_user_may_not_do_is_forbidden_and_changes_nothing() {
    let stage = Stage::new().await;
    let (address, mut plain) = (stage.node.address(), stage.connect());
    let all = "on >sesame ~* &* +@all";
    for (user, rights) in [
        ("no-keys", "on >sesame ~other:* &* +@all".to_owned()),
        ("read-keys", "on >sesame %R~* &* +@all".to_owned()),
        ("no-scripts", format!("{all} -evalsha -eval")),
        ("no-list", format!("{all} -hincrby -rpop -zrem")),
        // Lengths are asked for before anything is changed.
        ("no-zcard", format!("{all} -zcard")),
        ("no-hlen", format!("{all} -hlen")),
        ("no-llen", format!("{all} -llen")),
        ("no-exists", format!("{all} -exists")),
    ] {
        let words: Vec<&str> =
            ["ACL", "SETUSER", user].into_iter().chain(rights.split(' ')).collect();
        run::<()>(&mut plain, &words);
        let url = format!("redis://{user}:sesame@{address}");
        let backend = RedisBackend::open(&url).await.unwrap_or_else(|error| panic!("{error:#}"));
        send(&stage.backend, user, "good").await.unwrap();
        let before = contents(&mut plain);
        let error = send(&backend, user, "forbidden").await.unwrap_err();
        expect(&error, ErrorKind::Forbidden, &address, &["sesame"]);
        let error = receive(&backend, user, Duration::ZERO).await.unwrap_err();
        expect(&error, ErrorKind::Forbidden, &address, &["sesame"]);
        expect_same(&mut plain, &before, user);
        let taken = receive(&stage.backend, user, Duration::ZERO).await.unwrap();
        acknowledge(&stage.backend, user, &taken[0]).await.unwrap();
    }
    // One who may not even ask what it is.
    run::<()>(&mut plain, &["ACL", "SETUSER", "blind", "on", ">sesame", "~*", "+@all", "-info"]);
    let error = refused(&format!("redis://blind:sesame@{address}")).await;
    expect(&error, ErrorKind::Forbidden, &address, &["sesame"]);
}

#[tokio::test]
async fn a_database_that_is_not_there_is_an_invalid_parameter() {
    let node = Node::start(&[]).unwrap();
    let error = Mailbox::<String>::open(&format!("{}/jobs?db=99", url(&node))).await.unwrap_err();
    expect(&error, ErrorKind::InvalidParameter, &node.address(), &[]);
    assert_eq!(error.field(), Some("db"));
    let other = Mailbox::<String>::open(&format!("{}/jobs?db=7", url(&node))).await.unwrap();
    other.send("in 7".to_owned()).await.unwrap();
    let plain = Mailbox::<String>::open(&format!("{}/jobs", url(&node))).await.unwrap();
    assert!(plain.receive().await.unwrap().is_empty());
    assert_eq!(other.receive().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cluster_has_no_databases() {
    let node = Node::start(&[("cluster-enabled", "yes")]).unwrap();
    let mut plain = node.connect().unwrap();
    run::<()>(&mut plain, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    for scheme in ["redis", "redis+cluster"] {
        let address = format!("{scheme}://{}/jobs?db=1", node.address());
        let error = Mailbox::<String>::open(&address).await.unwrap_err();
        expect(&error, ErrorKind::InvalidParameter, &node.address(), &[]);
        assert_eq!(error.field(), Some("db"));
    }
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_told_soon() {
    let nobody = nobody().await;
    for url in [
        format!("redis://:sesame@{nobody}"),
        format!("redis+cluster://:sesame@{nobody}"),
        format!("redis+sentinel://:sesame@{nobody}/mymaster"),
        format!("rediss://:sesame@{nobody}"),
    ] {
        let start = Instant::now();
        let error = refused(&url).await;
        expect(&error, ErrorKind::Connection, &nobody, &["sesame"]);
        assert_ne!(error.retry(), Retry::Never, "{url}");
        assert!(start.elapsed() < Duration::from_secs(3), "{url}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn somebody_who_is_no_redis_is_told_soon() {
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".as_slice();
    for says in [
        Some(http),
        Some(b"220 mail ESMTP\r\n"),
        Some(b"\x15\x03\x03\x00\x02\x02\x50"),
        Some(b"\xff\xfe\x00\x01garbage\x00"),
        Some(b"*1000000000\r\n$1000000000\r\n"),
        Some(b""),
        None,
    ] {
        for scheme in ["redis", "redis+cluster"] {
            let address = stranger(says, false).await;
            let start = Instant::now();
            let error = refused(&format!("{scheme}://:sesame@{address}")).await;
            expect(&error, ErrorKind::Connection, &address, &["sesame"]);
            assert!(start.elapsed() < TOLD, "{scheme} {says:?}: {:?}", start.elapsed());
        }
        let address = stranger(says, false).await;
        let error = refused(&format!("redis+sentinel://{address}/mymaster")).await;
        expect(&error, ErrorKind::Connection, &address, &[]);
    }
}

#[tokio::test]
async fn somebody_who_agrees_to_everything_is_no_redis_either() {
    for says in [b"+OK\r\n".as_slice(), b":7\r\n", b"$-1\r\n", b"*0\r\n", b"%0\r\n", b"_\r\n"] {
        let address = stranger(Some(says), true).await;
        let opened = timeout(TOLD, RedisBackend::open(&format!("redis://{address}"))).await;
        let error = match opened.expect("it is told in time") {
            Err(error) => error,
            Ok(backend) => timeout(TOLD, send(&backend, "jobs", "lost?"))
                .await
                .expect("it is told in time")
                .expect_err("nobody has it"),
        };
        let kinds = [ErrorKind::Connection, ErrorKind::Internal, ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{says:?}: {error:#}");
    }
}

#[tokio::test]
async fn a_replica_names_its_master() {
    let (master, replica) = (Node::start(&[]).unwrap(), Node::start(&[]).unwrap());
    let (host, port) = (master.host(), master.port().to_string());
    run::<()>(&mut replica.connect().unwrap(), &["REPLICAOF", host, &port]);
    let error = refused(&url(&replica)).await;
    expect(&error, ErrorKind::Connection, &replica.address(), &[]);
    assert!(error.to_string().contains(&master.address()), "{error}");
}

#[tokio::test]
async fn a_durability_that_cannot_be_kept_is_refused_with_the_reason() {
    let node = Node::start(&[]).unwrap();
    for (durability, kind, why) in [
        ("fsync", ErrorKind::Unsupported, "appendonly"),
        ("replicated", ErrorKind::Unsupported, "no replica"),
        ("os-buffered", ErrorKind::InvalidParameter, "replicated"),
        ("eternal", ErrorKind::InvalidParameter, "eternal"),
    ] {
        let address = format!("{}/jobs?durability={durability}", url(&node));
        let error = Mailbox::<String>::open(&address).await.unwrap_err();
        expect(&error, kind, why, &[]);
        assert_eq!(error.field(), Some("durability"));
        if kind == ErrorKind::Unsupported {
            expect(&error, kind, &node.address(), &[]);
        }
    }
    let options = [("appendonly", "yes"), ("appendfsync", "always")];
    let safe = Node::start(&options).unwrap();
    let jobs = Mailbox::<String>::open(&format!("{}/jobs?durability=fsync", url(&safe))).await;
    let jobs = jobs.unwrap();
    jobs.send("kept".to_owned()).await.unwrap();
    assert_eq!(jobs.stats().await.unwrap().durability, Durability::Fsync);
}

#[tokio::test]
async fn what_could_lose_messages_is_warned_about() {
    let warnings = async |options: &[(&str, &str)], config: RedisConfig| {
        let stage = Stage::with(options, config).await;
        (stage.node.address(), stage.backend.warnings().to_vec())
    };
    let safe = [("appendonly", "yes"), ("appendfsync", "always")];
    let for_ever = RedisConfig::default().with_ttl(None);
    let (_, none) = warnings(&safe, for_ever.clone()).await;
    assert!(none.is_empty(), "{none:?}");
    let (_, ttl) = warnings(&safe, RedisConfig::default()).await;
    assert!(ttl.len() == 1 && ttl[0].contains("259200 s"), "{ttl:?}");
    let options = [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")];
    let (node, all) = warnings(&options, for_ever.clone()).await;
    let one = |what: &str| all.iter().any(|one| one.contains(what) && one.contains(&node));
    assert!(one("appendonly is off") && one("allkeys-lru") && one("noeviction"), "{all:?}");
    let slow = [("appendonly", "yes"), ("appendfsync", "no")];
    let (node, slow) = warnings(&slow, for_ever).await;
    assert!(slow.iter().any(|one| one.contains("appendfsync") && one.contains(&node)), "{slow:?}");
}

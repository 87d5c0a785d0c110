//! Whom an inbox is shared with, and what is done if it is not what it should be.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::{Backend, Error, ErrorKind, Verdict};

use super::{
    PATIENCE, Place, SOON, bash, is_root, is_second_life, nack, names, orders, receive, run_again,
    say, send, text, until,
};

fn shared() -> DirectoryConfig {
    let mut config = DirectoryConfig::default();
    config.shared = true;
    config
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Opens the folder anew and tries to receive, as another process would; why that is refused.
async fn refusal(place: &Place) -> Error {
    let opened = DirectoryBackend::open(place.backend.path()).await;
    let backend = match opened {
        Ok(backend) => backend,
        Err(error) => return error,
    };
    let counted = backend.stats(&orders()).await;
    let error = receive(&*backend, Duration::ZERO).await.unwrap_err();
    if let Err(counted) = counted {
        assert_eq!(counted.kind(), error.kind());
    }
    error
}

#[tokio::test]
async fn a_folder_of_inboxes_may_be_reached_by_a_link() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("real")).unwrap();
    symlink("real", root.path().join("link")).unwrap();
    let backend = DirectoryBackend::open(root.path().join("link")).await.unwrap();
    send(&*backend, "work").await;
    assert!(backend.path().ends_with("real"), "{:?}", backend.path());
    // It is the folder that counts from now on, wherever the link leads later.
    fs::create_dir(root.path().join("other")).unwrap();
    fs::remove_file(root.path().join("link")).unwrap();
    symlink("other", root.path().join("link")).unwrap();
    assert_eq!(text(&receive(&*backend, PATIENCE).await.unwrap().unwrap()), "work");
    assert!(names(&root.path().join("other")).is_empty());
}

#[tokio::test]
async fn a_place_that_is_no_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    symlink("nowhere", root.path().join("dangling")).unwrap();
    symlink("loop", root.path().join("loop")).unwrap();
    let before = names(root.path());
    for path in ["file", "file/below", "dangling", "loop"] {
        let error = DirectoryBackend::open(root.path().join(path)).await.unwrap_err();
        assert!(error.message().contains(path), "{path}: {error}");
    }
    assert_eq!(names(root.path()), before);
}

#[tokio::test]
async fn an_inbox_that_is_a_link_is_refused() {
    let place = Place::new().await;
    let target = place.root.path().join("elsewhere");
    fs::rename(place.at(""), &target).unwrap();
    symlink(&target, place.root.path().join("inboxes/orders")).unwrap();
    let before = names(&target.join("incoming"));
    let error = refusal(&place).await;
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    assert!(error.message().contains("orders"), "{error}");
    assert!(place.backend.list(None, 10).await.unwrap().is_empty());
    assert!(!matches!(place.backend.remove(&orders()).await, Ok(true)));
    assert_eq!(names(&target.join("incoming")), before);
}

#[tokio::test]
async fn folders_that_others_can_write_to_are_refused_unless_they_are_shared() {
    let parts = ["", "incoming", "processing", "done", "dead-letter", "incoming/.tmp", "notes"];
    for part in parts {
        for mode in [0o702, 0o777] {
            let place = Place::new().await;
            set_mode(&place.at(part), mode);
            let error = refusal(&place).await;
            assert_eq!(error.kind(), ErrorKind::Forbidden, "{part} {mode:o}: {error}");
            let is_helpful = ["shared", "chmod"].iter().any(|hint| error.message().contains(hint));
            assert!(is_helpful, "{part} {mode:o}: {error}");
            let backend = place.another(shared()).await;
            send(&*backend, "work").await;
            assert!(receive(&*backend, Duration::ZERO).await.unwrap().is_some(), "{part}");
        }
    }
}

#[tokio::test]
async fn a_folder_of_inboxes_that_others_can_write_to_is_refused_unless_it_is_shared() {
    let place = Place::new().await;
    set_mode(place.backend.path(), 0o777);
    let error = refusal(&place).await;
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert!(error.message().contains("shared"), "{error}");
    // Where nobody can exchange what is somebody else's, as in /tmp, it may be.
    set_mode(place.backend.path(), 0o1777);
    let backend = DirectoryBackend::open(place.backend.path()).await.unwrap();
    send(&*backend, "work").await;
    set_mode(place.backend.path(), 0o777);
    assert!(receive(&*place.another(shared()).await, PATIENCE).await.unwrap().is_some());
}

#[tokio::test]
async fn what_belongs_to_another_user_is_refused_unless_it_is_shared() {
    if !is_root() {
        say("not tested: only root can give folders away");
        return;
    }
    for part in ["", "incoming", "processing", "acks"] {
        let place = Place::new().await;
        chown(place.at(part), Some(65_534), None).unwrap();
        let error = refusal(&place).await;
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{part}: {error}");
        let backend = place.another(shared()).await;
        send(&*backend, "work").await;
        assert!(receive(&*backend, Duration::ZERO).await.unwrap().is_some(), "{part}");
    }
    // A message of another user is one only where the inbox is shared.
    let place = Place::new().await;
    place.put("incoming/strange.json", "1");
    chown(place.at("incoming/strange.json"), Some(65_534), None).unwrap();
    let delivery = receive(&*place.another(shared()).await, PATIENCE).await.unwrap();
    assert_eq!(text(&delivery.unwrap()), "1");
}

#[tokio::test]
async fn a_folder_that_is_a_link_is_refused() {
    for part in
        ["incoming", "processing", "done", "dead-letter", "incoming/.tmp", "aside", "notes", "acks"]
    {
        for target in ["outside", "nowhere"] {
            let place = Place::new().await;
            let outside = place.root.path().join("outside");
            fs::create_dir(&outside).unwrap();
            fs::remove_dir_all(place.at(part)).unwrap();
            symlink(place.root.path().join(target), place.at(part)).unwrap();
            let error = refusal(&place).await;
            assert_eq!(error.kind(), ErrorKind::Forbidden, "{part}: {error}");
            assert!(error.message().contains("orders"), "{part}: {error}");
            assert!(names(&outside).is_empty(), "{part}");
        }
    }
}

#[tokio::test]
async fn a_folder_that_is_a_file_is_refused() {
    for part in ["incoming", "processing", "done", "acks"] {
        let place = Place::new().await;
        fs::remove_dir_all(place.at(part)).unwrap();
        fs::write(place.at(part), "mine").unwrap();
        let error = refusal(&place).await;
        assert!(error.message().contains("orders"), "{part}: {error}");
        assert_eq!(fs::read(place.at(part)).unwrap(), b"mine");
    }
}

#[tokio::test]
async fn buckets_that_are_links_are_not_followed() {
    let mut config = DirectoryConfig::default();
    config.sharded = true;
    let place = Place::with(config.clone()).await;
    let outside = place.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.json"), "\"outside\"").unwrap();
    for shelf in ["incoming", "done"] {
        for bucket in 0..64 {
            let bucket = place.at(shelf).join(format!("{bucket:02x}"));
            let _ = fs::remove_dir(&bucket);
            symlink(&outside, bucket).unwrap();
        }
    }
    // Both whoever comes now and whoever was there before.
    for backend in [place.another(config).await, Arc::clone(&place.backend)] {
        let batch = vec![mailbox::Outgoing::new("work".into())];
        let sent = backend.send(&orders(), batch).await.and_then(|mut sent| sent.remove(0));
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::Forbidden);
        place.put("incoming/job.json", "1");
        let delivery = receive(&*backend, PATIENCE).await.unwrap().unwrap();
        assert_eq!(text(&delivery), "1");
        for verdict in [nack(), Verdict::Acknowledge] {
            let error = super::settle(&*backend, &delivery, verdict).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forbidden);
        }
        assert!(receive(&*backend, Duration::ZERO).await.unwrap().is_none());
        place.bash("rm processing/??/job*.json");
    }
    assert_eq!(names(&outside), ["secret.json"]);
}

#[tokio::test]
async fn an_inbox_that_was_exchanged_is_noticed() {
    for events in [true, false] {
        let mut config = DirectoryConfig::default();
        config.events = events;
        let place = Place::with(config).await;
        place.send("old").await;
        let old = place.receive().await;
        let backend = Arc::clone(&place.backend);
        let waits = tokio::spawn(async move { receive(&*backend, PATIENCE).await });
        until("somebody waits", || async { place.stats().await.waiters == 1 }).await;
        // Nobody else uses it: whoever waits has to see it.
        bash(place.backend.path(), "mv orders elsewhere; mkdir -m 700 orders orders/incoming");
        let exchanged = Instant::now();
        let error = waits.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(exchanged.elapsed() < SOON, "{:?}", exchanged.elapsed());
        let error = place.settle(&old, Verdict::Acknowledge).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired, "{error}");
        place.send("new").await;
        let new = place.receive().await;
        assert_eq!(text(&new), "new");
        place.acknowledge(&new).await;
        // Nothing happened to the other one.
        bash(place.backend.path(), "mv orders new; mv elsewhere orders");
        place.acknowledge(&old).await;
    }
}

#[tokio::test]
async fn an_inbox_json_that_is_none_is_named() {
    let make: [(&str, &str, Option<ErrorKind>); 12] = [
        ("a link", "mv inbox.json real; ln -s real inbox.json", Some(ErrorKind::Forbidden)),
        ("a dangling link", "ln -sf nowhere inbox.json", Some(ErrorKind::Forbidden)),
        ("a pipe", "rm inbox.json; mkfifo inbox.json", Some(ErrorKind::Integrity)),
        ("a folder", "rm inbox.json; mkdir inbox.json", None),
        ("empty", ": > inbox.json", Some(ErrorKind::Integrity)),
        ("garbage", "echo hello > inbox.json", Some(ErrorKind::Integrity)),
        ("binary", "head -c 1000 /dev/urandom > inbox.json", Some(ErrorKind::Integrity)),
        ("half", "truncate -s 40 inbox.json", Some(ErrorKind::Integrity)),
        ("huge", "truncate -s 1T inbox.json", Some(ErrorKind::Integrity)),
        ("version", "sed -i 's/\"version\": 1/\"version\": 2/' inbox.json", None),
        ("a time", "sed -i 's/\"60s\"/\"a minute\"/' inbox.json", Some(ErrorKind::Integrity)),
        ("shards", "sed -i 's/\"shards\": 0/\"shards\": 7/' inbox.json", None),
    ];
    for (what, script, kind) in make {
        let place = Place::new().await;
        place.send("work").await;
        // Not just now: somebody might be writing it.
        let script = format!("{script}; touch -h -d '1 minute ago' inbox.json");
        place.bash(&format!("cp inbox.json ../good; {script}"));
        let start = Instant::now();
        // Both whoever comes now and whoever was there before.
        let before = receive(&*place.backend, Duration::ZERO).await.unwrap_err();
        for error in [refusal(&place).await, before] {
            assert!(error.message().contains("inbox.json"), "{what}: {error}");
            if let Some(kind) = kind {
                assert_eq!(error.kind(), kind, "{what}: {error}");
            }
        }
        assert!(start.elapsed() < SOON, "{what}: {:?}", start.elapsed());
        // Whoever mends it needs nothing else.
        place.bash("rm -rf inbox.json; cp ../good inbox.json");
        assert_eq!(text(&place.receive().await), "work", "{what}");
    }
}

#[tokio::test]
async fn other_files_of_ours_that_are_none_block_nobody() {
    for file in ["seen", ".lock", "counts.json", ".swept", ".inbox.json", ".seen"] {
        for script in ["mkfifo FILE", "ln -s ../../outside FILE", "mkdir FILE", "echo '{' > FILE"] {
            let place = Place::new().await;
            fs::write(place.root.path().join("outside"), "mine").unwrap();
            place.bash(&format!("rm -rf {file}; {}", script.replace("FILE", file)));
            let work = async {
                // It may be refused, and must not be waited for.
                let opened = DirectoryBackend::open(place.backend.path()).await.unwrap();
                let mut keyed = mailbox::Outgoing::new("1".into());
                keyed.idempotency_key = Some("key".to_owned());
                let _ = opened.send(&orders(), vec![keyed]).await;
                let _ = receive(&*opened, Duration::ZERO).await;
                let policy = opened.policy(&orders()).await;
                if let Ok(policy) = policy {
                    let _ = opened.configure(&orders(), policy).await;
                }
                let _ = opened.purge(&orders()).await;
                let _ = opened.stats(&orders()).await;
            };
            let done = tokio::time::timeout(PATIENCE, work).await;
            assert!(done.is_ok(), "{file}: {script} is waited for");
            let outside = fs::read(place.root.path().join("outside")).unwrap();
            assert_eq!(outside, b"mine", "{file}: {script}");
        }
    }
}

/// Everything that was made, with its rights.
fn check_modes(folder: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let facts = fs::symlink_metadata(&path).unwrap();
        let expected = if facts.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(facts.mode() & 0o7777, expected, "{}", path.display());
        count += 1 + if facts.is_dir() { check_modes(&path) } else { 0 };
    }
    count
}

#[tokio::test]
async fn everything_is_private_whatever_the_mask() {
    if !is_second_life() {
        let test = "trust::everything_is_private_whatever_the_mask";
        for mask in ["000", "002", "022", "077"] {
            run_again(test, &format!("umask {mask}; exec"));
        }
        return;
    }
    for sharded in [false, true] {
        let mut config = DirectoryConfig::default();
        config.sharded = sharded;
        let place = Place::with(config).await;
        place.set("acks", true);
        set_mode(&place.at("inbox.json"), 0o600);
        for number in 0..4 {
            let mut keyed = mailbox::Outgoing::new("work".into());
            keyed.idempotency_key = Some(number.to_string());
            place.backend.send(&orders(), vec![keyed]).await.unwrap().remove(0).unwrap();
        }
        place.acknowledge(&place.receive().await).await;
        let error = Some("why".into());
        let failed = Verdict::Nack { delay: Duration::ZERO, error: error.clone() };
        place.settle(&place.receive().await, failed).await.unwrap();
        let reason = mailbox::DeadReason::Rejected;
        let reject = Verdict::Reject { reason, error };
        place.settle(&place.receive().await, reject).await.unwrap();
        assert!(place.backend.purge(&orders()).await.unwrap() > 0);
        let policy = place.backend.policy(&orders()).await.unwrap();
        place.backend.configure(&orders(), policy).await.unwrap();
        let count = check_modes(place.root.path());
        assert!(count > 15, "{count} files");
    }
}

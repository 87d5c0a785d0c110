//! Much of everything: files, messages, mailboxes, and too little space.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::{
    Backend, Durability, ErrorKind, Name, Outgoing, ReceiveOptions, Settlement, Settling, Verdict,
};

use super::{
    PATIENCE, Place, SOON, is_root, is_second_life, orders, receive, run_again, say, send, settle,
    text,
};

#[tokio::test]
async fn a_hundred_thousand_files_of_others_stop_nobody() {
    let place = Place::new().await;
    for number in 0..100_000 {
        File::create(place.at("incoming").join(format!("foreign-{number}"))).unwrap();
    }
    place.send("good").await;
    let start = Instant::now();
    let delivery = place.receive().await;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    place.acknowledge(&delivery).await;
    // Also for whoever comes now, and has to look at all of them.
    place.send("another").await;
    let start = Instant::now();
    let other = place.another(DirectoryConfig::default()).await;
    let delivery = receive(&*other, PATIENCE).await.unwrap().unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(text(&delivery), "another");
    let start = Instant::now();
    settle(&*other, &delivery, Verdict::Acknowledge).await.unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[tokio::test]
async fn more_messages_than_are_remembered_are_delivered_in_their_order() {
    const COUNT: usize = (1 << 16) + 1_500;
    let mut config = DirectoryConfig::default();
    (config.durability, config.settle) = (Durability::OsBuffered, Settling::Lazy);
    let place = Place::with(config.clone()).await;
    place.set("done_count", 0);
    // Backwards, so that the order is not that of coming.
    for number in (0..COUNT).rev() {
        let name = format!("{}.{number:09}-a.json", 1_700_000_000);
        fs::write(place.at("incoming").join(name), number.to_string()).unwrap();
    }
    let backend = place.another(config).await;
    let options = ReceiveOptions::new().with_max_messages(256).with_wait(PATIENCE);
    let mut next = 0;
    while next < COUNT {
        let got = backend.receive(&orders(), &options).await.unwrap();
        assert!(!got.is_empty(), "{next} of {COUNT}");
        for delivery in &got {
            assert_eq!(text(delivery), next.to_string());
            next += 1;
        }
        // Most of them are dealt with by others, which is faster.
        if !(2_000..=(1 << 16) - 1_000).contains(&next) {
            let settlement = |delivery: mailbox::Delivery| Settlement {
                receipt_handle: delivery.receipt_handle,
                verdict: Verdict::Acknowledge,
            };
            let batch = got.into_iter().map(settlement).collect();
            for settled in backend.settle(&orders(), batch).await.unwrap() {
                settled.unwrap();
            }
        }
        if (1_000..2_000).contains(&next) {
            let until = (1 << 16) - 500;
            for number in next..until {
                let name = format!("{}.{number:09}-a.json", 1_700_000_000);
                fs::remove_file(place.at("incoming").join(name)).unwrap();
            }
            next = until;
        }
    }
    assert!(receive(&*backend, Duration::ZERO).await.unwrap().is_none());
}

/// Descriptors of this process that lead to somewhere in this folder.
fn open_files(folder: &Path) -> usize {
    let leads_there = |entry: std::io::Result<fs::DirEntry>| {
        fs::read_link(entry.unwrap().path()).is_ok_and(|path| path.starts_with(folder))
    };
    fs::read_dir("/proc/self/fd").unwrap().map(leads_there).filter(|leads| *leads).count()
}

#[tokio::test]
async fn many_mailboxes_need_few_open_files() {
    if !is_second_life() {
        return run_again("bounds::many_mailboxes_need_few_open_files", "ulimit -n 640; exec");
    }
    let mut config = DirectoryConfig::default();
    config.durability = Durability::OsBuffered;
    let place = Place::with(config).await;
    for number in 0..300 {
        let mailbox: Name = format!("mailbox-{number}").parse().unwrap();
        let batch = vec![Outgoing::new("work".into())];
        place.backend.send(&mailbox, batch).await.unwrap().remove(0).unwrap();
        let got = place.backend.receive(&mailbox, &ReceiveOptions::new()).await.unwrap();
        let receipt_handle = got[0].receipt_handle.clone();
        let batch = vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }];
        place.backend.settle(&mailbox, batch).await.unwrap().remove(0).unwrap();
    }
    let open = open_files(place.root.path());
    assert!(open > 0 && open < 600, "{open} files are open");
    assert_eq!(place.backend.list(None, 1_000).await.unwrap().len(), 301);
    place.backend.close().await.unwrap();
    let start = Instant::now();
    // Whatever is still under way holds what it needs for a moment.
    while open_files(place.root.path()) > 1 {
        assert!(start.elapsed() < SOON, "{} files stay open", open_files(place.root.path()));
        tokio::time::sleep(super::PAUSE).await;
    }
}

/// A small file system in memory, for as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: &Path) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"]).arg(at);
        mount.status().is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{:?} stays mounted", self.0);
    }
}

#[tokio::test]
async fn without_space_sends_are_refused_and_everything_else_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let disk = SmallDisk::new(&root.path().join("disk")).filter(|_| is_root());
    let Some(disk) = disk else {
        say("not tested: only root can mount a small disk");
        return;
    };
    let backend = DirectoryBackend::open(disk.0.join("inboxes")).await.unwrap();
    let payload = "x".repeat(10_000);
    let mut sent = 0;
    let error = loop {
        assert!(sent < 1_000, "a small disk takes everything");
        let batch = vec![Outgoing::new(payload.clone().into())];
        match backend.send(&orders(), batch).await.and_then(|mut sent| sent.remove(0)) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(sent > 10, "{sent}");
    assert_eq!((error.kind(), error.field()), (ErrorKind::Saturated, Some("storage")), "{error}");
    // Nothing of it is left in the way.
    let tmp = disk.0.join("inboxes/orders/incoming/.tmp");
    assert_eq!(fs::read_dir(tmp).unwrap().count(), 0);
    let settings = disk.0.join("inboxes/orders/inbox.json");
    let text = fs::read_to_string(&settings).unwrap();
    let first = receive(&*backend, Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(first.letter.payload, payload);
    settle(&*backend, &first, super::nack()).await.unwrap();
    for _ in 0..sent / 2 {
        let delivery = receive(&*backend, Duration::ZERO).await.unwrap().unwrap();
        settle(&*backend, &delivery, Verdict::Acknowledge).await.unwrap();
    }
    assert_eq!(backend.stats(&orders()).await.unwrap().live(), sent - sent / 2);
    // What is done is kept. Whoever needs the space has it kept for less long.
    let text = text.replace("\"done_count\": 10000", "\"done_count\": 0");
    fs::remove_dir_all(disk.0.join("inboxes/orders/done")).unwrap();
    fs::create_dir(disk.0.join("inboxes/orders/done")).unwrap();
    fs::write(&settings, text).unwrap();
    let backend = DirectoryBackend::open(disk.0.join("inboxes")).await.unwrap();
    for _ in 0..3 {
        send(&*backend, &payload).await;
        let delivery = receive(&*backend, Duration::ZERO).await.unwrap().unwrap();
        settle(&*backend, &delivery, Verdict::Acknowledge).await.unwrap();
    }
}

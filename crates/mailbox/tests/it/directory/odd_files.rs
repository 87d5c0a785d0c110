//! Files that are no messages, in every form that somebody may leave in an inbox: nobody is
//! stopped by them, nothing is followed, nothing is deleted, and they are counted (S7).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mailbox::backends::directory::DirectoryConfig;
use mailbox::{Backend, DeadReason, Outgoing, ReceiveOptions};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::{
    Place, SOON, is_root, is_second_life, names, orders, receive, run_again, say, text, until,
};

/// Some other user.
const STRANGER: u32 = 65_534;
const MAX_PAYLOAD: usize = 64 * 1024;
/// Longest file that may hold such a payload, and a little more.
const TOO_LONG: u64 = 6 * MAX_PAYLOAD as u64 + 4 * 1024 * 1024 + 1;

/// What somebody leaves in an inbox.
#[derive(Debug, Clone)]
pub(super) enum Thing {
    /// A file that was written long ago.
    Bytes(Vec<u8>),
    Sparse(u64),
    Link(PathBuf),
    Fifo,
    Socket,
    Device,
    Folder,
    /// A message of somebody else.
    Strange,
    /// A message whose file has these rights.
    Rights(u32),
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Aside,
    Stays,
    Delivered,
    Buried,
}

#[derive(Debug)]
pub(super) struct Case {
    shelf: &'static str,
    name: Vec<u8>,
    thing: Thing,
    fate: Fate,
}

/// Whether somebody waits when it is left there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment {
    Before,
    Waiting,
}

pub(super) const MOMENTS: [Moment; 2] = [Moment::Before, Moment::Waiting];
pub(super) const SHELVES: [&str; 2] = ["incoming", "processing"];

impl Case {
    pub(super) fn new(
        shelf: &'static str,
        name: impl AsRef<[u8]>,
        thing: Thing,
        fate: Fate,
    ) -> Self {
        Self { shelf, name: name.as_ref().to_vec(), thing, fate }
    }

    fn path(&self, place: &Place) -> PathBuf {
        place.at(self.shelf).join(OsStr::from_bytes(&self.name))
    }

    /// Leaves it there; what tells it from other files.
    fn plant(&self, place: &Place) -> u64 {
        let path = self.path(place);
        match &self.thing {
            Thing::Bytes(bytes) => write_long_ago(place, &path, bytes),
            Thing::Sparse(len) => {
                let file = File::create(place.at("incoming/.tmp/long")).unwrap();
                // As long as the file system allows.
                let fits = (0..40).any(|shift| file.set_len(len >> shift).is_ok());
                assert!(fits && file.metadata().unwrap().len() >= TOO_LONG.min(*len));
                fs::rename(place.at("incoming/.tmp/long"), &path).unwrap();
            }
            Thing::Link(target) => symlink(target, &path).unwrap(),
            Thing::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
            Thing::Socket => drop(UnixListener::bind(&path).unwrap()),
            Thing::Device => {
                let null = makedev(1, 3);
                mknodat(CWD, &path, FileType::CharacterDevice, Mode::RWXU, null).unwrap();
            }
            Thing::Folder => {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("inner.json"), "1").unwrap();
            }
            Thing::Strange => {
                let written = place.at("incoming/.tmp/strange");
                fs::write(&written, "1").unwrap();
                chown(&written, Some(STRANGER), Some(STRANGER)).unwrap();
                fs::rename(written, &path).unwrap();
            }
            Thing::Rights(mode) => {
                let written = place.at("incoming/.tmp/rights");
                fs::write(&written, "1").unwrap();
                fs::set_permissions(&written, fs::Permissions::from_mode(*mode)).unwrap();
                fs::rename(written, &path).unwrap();
            }
        }
        fs::symlink_metadata(&path).unwrap().ino()
    }

    /// Whether it is counted as no message.
    fn is_counted(&self) -> bool {
        let is_hidden = self.name.starts_with(b".");
        let is_folder = matches!(self.thing, Thing::Folder);
        let is_foreign = self.fate == Fate::Stays && self.shelf == "incoming";
        self.fate == Fate::Aside || (is_foreign && !is_hidden && !is_folder)
    }
}

/// Writes a file whose writer had all the time it needed.
fn write_long_ago(place: &Place, path: &Path, bytes: &[u8]) {
    let written = place.at("incoming/.tmp/written");
    fs::write(&written, bytes).unwrap();
    set_age(&written, Duration::from_secs(60));
    fs::rename(written, path).unwrap();
}

fn set_age(path: &Path, age: Duration) {
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

/// What is outside the inbox, and must stay as it is.
pub(super) struct Canary {
    folder: PathBuf,
    before: BTreeMap<PathBuf, (u32, u32, i64, Vec<u8>)>,
}

impl Canary {
    fn new(root: &Path) -> Self {
        let folder = root.join("outside");
        fs::create_dir_all(folder.join("folder")).unwrap();
        for file in ["file.json", "folder/inner.json"] {
            fs::write(folder.join(file), r#"{"content":"outside"}"#).unwrap();
        }
        let before = snapshot(&folder);
        Self { folder, before }
    }

    fn check(&self) {
        assert_eq!(snapshot(&self.folder), self.before);
    }
}

fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (u32, u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for path in walk(folder) {
        let facts = fs::symlink_metadata(&path).unwrap();
        let content = if facts.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path, (facts.mode(), facts.uid(), facts.mtime(), content));
    }
    found
}

/// Everything in a folder, and in those in it.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_dir()) {
            found.extend(walk(&path));
        }
        found.push(path);
    }
    found
}

/// Leaves all of them in an inbox, with a good message behind them, and sees what becomes of them.
pub(super) async fn check(moment: Moment, cases: &[Case], place: Place, canary: &Canary) {
    place.set("shell_lease", "0s");
    assert!(place.receive_now().await.is_none());
    let waiting = matches!(moment, Moment::Waiting).then(|| {
        let backend = Arc::clone(&place.backend);
        tokio::spawn(async move { receive(&*backend, SOON).await.unwrap() })
    });
    if waiting.is_some() {
        until("somebody waits", || async { place.stats().await.waiters == 1 }).await;
    }
    let planted: Vec<u64> = cases.iter().map(|case| case.plant(&place)).collect();
    place.send("good").await;
    let start = Instant::now();
    let mut delivered = Vec::new();
    if let Some(waiting) = waiting {
        delivered.extend(waiting.await.unwrap());
    }
    let options = ReceiveOptions::new().with_max_messages(10).with_wait(SOON);
    while !delivered.iter().any(|delivery| delivery.letter.payload == "good") {
        let got = place.backend.receive(&orders(), &options).await.unwrap();
        assert!(!got.is_empty(), "the good one is not delivered");
        delivered.extend(got);
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(delivered.iter().all(|delivery| !text(delivery).contains("outside")));
    until_settled(cases, &planted, &place).await;
    let counted = cases.iter().filter(|case| case.is_counted()).count();
    assert_eq!(place.stats().await.set_aside, counted as u64);
    canary.check();
}

/// Waits until everything that was planted is where it belongs.
async fn until_settled(cases: &[Case], planted: &[u64], place: &Place) {
    let start = Instant::now();
    loop {
        place.backend.receive(&orders(), &ReceiveOptions::new()).await.unwrap();
        let there: BTreeMap<u64, PathBuf> = walk(&place.at(""))
            .into_iter()
            .filter_map(|path| Some((fs::symlink_metadata(&path).ok()?.ino(), path)))
            .collect();
        let wrong = cases.iter().zip(planted).find_map(|(case, planted)| {
            let fate = match there.get(planted) {
                None => None,
                Some(path) if path.starts_with(place.at("aside")) => Some(Fate::Aside),
                Some(path) if path.starts_with(place.at("dead-letter")) => Some(Fate::Buried),
                Some(path) if *path == case.path(place) => Some(Fate::Stays),
                Some(path) if path.to_string_lossy().contains("~c") => Some(Fate::Delivered),
                Some(_) => None,
            };
            let name = String::from_utf8_lossy(&case.name);
            (fate != Some(case.fate)).then(|| format!("{name:?}: {fate:?}, {case:.300?}"))
        });
        let Some(wrong) = wrong else { return };
        assert!(start.elapsed() < SOON, "{wrong}");
        tokio::time::sleep(super::PAUSE).await;
    }
}

pub(super) async fn place() -> (Place, Canary) {
    let mut config = DirectoryConfig::default();
    config.max_payload = MAX_PAYLOAD;
    let place = Place::with(config).await;
    let canary = Canary::new(place.root.path());
    (place, canary)
}

/// Contents that are no message, and some that are one against all appearances.
fn contents() -> Vec<(Vec<u8>, Fate)> {
    let deep = |open: &str, close: &str| (open.repeat(100_000) + &close.repeat(100_000)).into();
    let ours = r#"{"id":"x","timestamp":"2025-12-07T19:30:00Z","sender":"a","type":"b",
        "content":1,"attempts":0,"mailbox":{"v":VERSION,"topic":"orders","encoding":"json",
        "payload_hash":"b3:00","hash_chain":"b3:00"}}"#;
    let mut all: Vec<(Vec<u8>, Fate)> = [
        &b""[..],
        b" \n",
        b"\0",
        b"{",
        b"{\"id\":\"x\",\"content\":\"half of a mess",
        b"{\"content\":1}}",
        b"{\"content\":1} {\"content\":2}",
        b"hello",
        b"hello world, this is no JSON\n",
        b"NaN",
        b"'single'",
        b"[1,]",
        b"{\"content\":\"\xff\"}",
        b"\xff\xfe{\0}\0",
        b"\xef\xbb\xbf{\"content\":1}",
        b"#!/bin/bash\nrm -rf /\n",
        b"\x7fELF\x02\x01\x01",
    ]
    .map(|bytes| (bytes.to_vec(), Fate::Aside))
    .into();
    let long_payload = format!("{{\"content\":\"{}\"}}", "x".repeat(MAX_PAYLOAD));
    all.extend([
        (deep("[", ""), Fate::Aside),
        (deep("{\"a\":", ""), Fate::Aside),
        (long_payload.into_bytes(), Fate::Aside),
        (ours.replace("VERSION", "2").into_bytes(), Fate::Aside),
        (ours.replace("VERSION", "1").into_bytes(), Fate::Buried),
        (b"[".repeat(30_000).into_iter().chain(b"]".repeat(30_000)).collect(), Fate::Delivered),
        (br#"{"id":"../../outside/file.json","content":1}"#.to_vec(), Fate::Delivered),
        (br#"{"id":"/etc/passwd","sender":"../..","content":2}"#.to_vec(), Fate::Delivered),
        (br#"{"id":"a\u0000b\n","content":3}"#.to_vec(), Fate::Delivered),
        (br#"{"id":17,"content":4,"attempts":-1}"#.to_vec(), Fate::Delivered),
    ]);
    all
}

#[tokio::test]
async fn files_with_odd_contents_stop_nobody() {
    let mut count = 0;
    for moment in MOMENTS {
        for shelf in SHELVES {
            let (place, canary) = place().await;
            let mut cases = Vec::new();
            for (number, (bytes, fate)) in contents().into_iter().enumerate() {
                let name = match number % 3 {
                    0 => format!("odd-{number}.json"),
                    1 => format!("1765135800-a-{number}.json"),
                    _ => format!("odd-{number}~n1.json"),
                };
                cases.push(Case::new(shelf, name, Thing::Bytes(bytes), fate));
            }
            for (name, len) in [("long", TOO_LONG), ("huge", i64::MAX.unsigned_abs())] {
                let thing = Thing::Sparse(len);
                cases.push(Case::new(shelf, format!("{name}.json"), thing, Fate::Aside));
            }
            count += cases.len();
            check(moment, &cases, place, &canary).await;
        }
    }
    assert!(count > 100, "{count} cases");
}

/// Things that are no files, or not only files.
fn things(place: &Place, canary: &Canary) -> Vec<(Thing, Fate)> {
    let outside = |name: &str| canary.folder.join(name);
    let mut things = vec![
        (Thing::Link(outside("file.json")), Fate::Aside),
        (Thing::Link("../../../outside/file.json".into()), Fate::Aside),
        (Thing::Link(place.at("inbox.json")), Fate::Aside),
        (Thing::Link("/nowhere/at/all".into()), Fate::Aside),
        (Thing::Link(outside("folder")), Fate::Aside),
        (Thing::Link("/dev/zero".into()), Fate::Aside),
        (Thing::Fifo, Fate::Aside),
        (Thing::Socket, Fate::Aside),
        (Thing::Folder, Fate::Stays),
        (Thing::Rights(0o4755), Fate::Delivered),
        (Thing::Rights(0o666), Fate::Delivered),
    ];
    if is_root() {
        things.push((Thing::Device, Fate::Aside));
        things.push((Thing::Strange, Fate::Aside));
    } else {
        say("no devices and no files of other users: only root can make them");
    }
    things
}

#[tokio::test]
async fn what_is_no_plain_file_of_ours_is_never_followed_and_stops_nobody() {
    for moment in MOMENTS {
        for shelf in SHELVES {
            for marks in ["", "~n1"] {
                let (place, canary) = place().await;
                let mut things = things(&place, &canary);
                if matches!(moment, Moment::Waiting) {
                    // A new folder makes everybody look: the others shall come by events alone.
                    things.retain(|(thing, _)| !matches!(thing, Thing::Folder));
                }
                let things = things.into_iter().enumerate();
                let mut cases: Vec<Case> = things
                    .map(|(number, (thing, fate))| {
                        Case::new(shelf, format!("odd-{number}{marks}.json"), thing, fate)
                    })
                    .collect();
                let own = format!("loop{marks}.json");
                cases.push(Case::new(shelf, &own, Thing::Link(own.clone().into()), Fate::Aside));
                check(moment, &cases, place, &canary).await;
            }
        }
    }
}

#[tokio::test]
async fn a_count_of_deliveries_that_cannot_rise_stops_nobody() {
    let mut config = DirectoryConfig::default();
    config.policy.max_attempts = None;
    let place = Place::with(config).await;
    for shelf in SHELVES {
        place.set("shell_lease", "0s");
        place.put(&format!("{shelf}/x~n4294967295.json"), "1");
        place.send("good").await;
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < SOON, "{shelf}: the good one is not delivered");
            match receive(&*place.backend, Duration::ZERO).await {
                Ok(Some(delivery)) if delivery.letter.payload == "good" => break,
                Ok(_) => {}
                Err(error) => panic!("{shelf}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn files_of_the_same_name_are_set_aside_beside_each_other() {
    let (place, _canary) = place().await;
    for round in 1..=5_usize {
        write_long_ago(&place, &place.at("incoming/a b.json"), b"1");
        write_long_ago(&place, &place.at("incoming/half.json"), b"{");
        until("both are set aside", || async {
            assert!(place.receive_now().await.is_none());
            names(&place.at("aside")).len() == 2 * round
        })
        .await;
    }
    assert_eq!(place.stats().await.set_aside, 10);
}

#[tokio::test]
async fn a_message_that_is_not_what_was_sent_is_a_dead_letter() {
    let place = Place::new().await;
    let mut outgoing = Outgoing::new("work".into());
    outgoing.attributes.insert("colour".to_owned(), "green".to_owned());
    place.backend.send(&orders(), vec![outgoing]).await.unwrap().remove(0).unwrap();
    place.bash("sed -i s/green/black/ incoming/*.json");
    assert!(place.receive_now().await.is_none());
    let [(record, death)] = &place.dead().await[..] else { panic!("it is dead") };
    assert_eq!(death.reason, DeadReason::Integrity);
    assert!(record.last_error.is_some());
}

#[tokio::test]
async fn a_file_that_cannot_be_read_stops_nobody() {
    if is_root() && !is_second_life() {
        let test = "odd_files::a_file_that_cannot_be_read_stops_nobody";
        return run_again(test, "exec setpriv --bounding-set=-all --inh-caps=-all");
    }
    let place = Place::new().await;
    place.put("incoming/closed.json", "1");
    fs::set_permissions(place.at("incoming/closed.json"), fs::Permissions::from_mode(0o000))
        .unwrap();
    place.send("good").await;
    let start = Instant::now();
    // Whoever comes upon it may be told; whoever comes next is not stopped.
    let delivery = loop {
        assert!(start.elapsed() < SOON, "the good one is not delivered");
        match receive(&*place.backend, Duration::ZERO).await {
            Ok(Some(delivery)) => break delivery,
            Ok(None) => {}
            Err(error) => assert_eq!(error.kind(), mailbox::ErrorKind::Forbidden, "{error}"),
        }
    };
    assert_eq!(text(&delivery), "good");
    let live = place.bash("ls incoming processing dead-letter aside | grep -c closed");
    assert_eq!(live.trim(), "1");
}

//! The limit: a loop that writes a file, syncs it, renames it and syncs the folder. No names that
//! sort, nothing around the payload, no runtime; it could deliver nothing.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::journal::load::{Bodies, Sink};

/// A folder for what is being written and one for what is there.
#[derive(Debug)]
pub(crate) struct BareFiles {
    written: PathBuf,
    sent: PathBuf,
}

impl BareFiles {
    /// In this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let bare = Self { written: folder.join("bare-tmp"), sent: folder.join("bare-new") };
        for folder in [&bare.written, &bare.sent] {
            std::fs::create_dir(folder).expect("a folder can be made");
        }
        bare
    }

    /// Lets so many threads send for a while; files a second.
    pub(crate) fn drive(&self, producers: usize, lasting: Duration) -> f64 {
        let (start, bodies) = (Instant::now(), Bodies::new());
        let sent: u64 = std::thread::scope(|scope| {
            let produce = |number: usize| {
                let mut bodies = bodies.starting_at(number);
                let folder = File::open(&self.sent).expect("the folder is there");
                scope.spawn(move || {
                    let mut sent = 0;
                    while start.elapsed() < lasting {
                        self.send(&folder, &format!("{number}-{sent}.json"), &bodies.next());
                        sent += 1;
                    }
                    sent
                })
            };
            let producers: Vec<_> = (0..producers).map(produce).collect();
            producers.into_iter().map(|one| one.join().expect("a producer does not panic")).sum()
        });
        sent as f64 / start.elapsed().as_secs_f64()
    }

    fn send(&self, folder: &File, name: &str, body: &[u8]) {
        let written = self.written.join(name);
        let mut file = File::create_new(&written).expect("a new name");
        file.write_all(body).expect("there is room for a file");
        file.sync_data().expect("the file can be synced");
        std::fs::rename(&written, self.sent.join(name)).expect("it was just written");
        folder.sync_all().expect("the folder can be synced");
    }

    /// Removes everything.
    pub(crate) fn clear(&self) {
        for entry in std::fs::read_dir(&self.sent).expect("the folder is there").flatten() {
            std::fs::remove_file(entry.path()).expect("nobody else removes it");
        }
    }
}

/// The same loop, called by tasks: each file is written by a thread that may block. What is missing
/// to the bare loop no library that is called by tasks can have.
#[derive(Debug)]
pub(crate) struct Hopping {
    files: Arc<BareFiles>,
    folder: Arc<File>,
    sent: AtomicU64,
}

impl Hopping {
    /// To the folders of these.
    pub(crate) fn new(files: &Arc<BareFiles>) -> Arc<Self> {
        let folder = Arc::new(File::open(&files.sent).expect("the folder is there"));
        Arc::new(Self { files: Arc::clone(files), folder, sent: AtomicU64::new(0) })
    }
}

impl Sink for Hopping {
    async fn send(&self, body: Bytes) {
        let (files, folder) = (Arc::clone(&self.files), Arc::clone(&self.folder));
        let name = format!("hopping-{}.json", self.sent.fetch_add(1, Ordering::Relaxed));
        let sent = tokio::task::spawn_blocking(move || files.send(&folder, &name, &body));
        sent.await.expect("a send does not panic");
    }
}

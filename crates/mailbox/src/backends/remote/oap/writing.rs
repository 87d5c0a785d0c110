//! What goes out on a connection, everything that is in line at a time.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::link::Shared;

/// Most room that is kept for what goes out next.
const KEPT: usize = 256 * 1024;
/// How long it may take to say that nothing follows.
const GOODBYE: Duration = Duration::from_secs(1);

/// What is being written.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where in it requests end.
    ends: Vec<(usize, u64)>,
    /// So much may have gone out.
    gone: usize,
}

/// Writes until that fails, or `shared` says that it is over.
pub(super) async fn write(shared: &Shared, mut writing: impl AsyncWrite + Unpin) -> io::Error {
    let mut batch = Batch::default();
    let written = tokio::select! {
        biased;
        () = shared.closed.cancelled() => Ok(()),
        written = write_all(shared, &mut writing, &mut batch) => written,
    };
    // What went out only in part was not carried out.
    batch.note(shared);
    // The service sees the end of what it reads, if there still is a connection.
    let _ = tokio::time::timeout(GOODBYE, writing.shutdown()).await;
    written.err().unwrap_or_else(|| io::ErrorKind::NotConnected.into())
}

async fn write_all(
    shared: &Shared,
    writing: &mut (impl AsyncWrite + Unpin),
    batch: &mut Batch,
) -> io::Result<()> {
    loop {
        let room = shared.flight.lock().take_out(&mut batch.bytes, &mut batch.ends);
        shared.room.add_permits(room);
        if batch.bytes.is_empty() {
            shared.filled.notified().await;
            continue;
        }
        while batch.gone < batch.bytes.len() {
            let rest = &batch.bytes[batch.gone..];
            // With TLS some of it may go out even if this fails.
            let before = std::mem::replace(&mut batch.gone, batch.bytes.len());
            if !shared.is_tls {
                batch.gone = before;
            }
            let count = writing.write(rest).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            batch.gone = before + count;
        }
        writing.flush().await?;
        batch.note(shared);
        batch.clear();
    }
}

impl Batch {
    /// Notes which requests went out.
    fn note(&self, shared: &Shared) {
        let gone = self.ends.iter().take_while(|(end, _)| *end <= self.gone);
        shared.flight.lock().written(gone.map(|(_, id)| *id));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.ends.clear();
        self.gone = 0;
    }
}

//! What comes in on a connection, as much at a time as there is.

use bytes::BytesMut;
use mailbox_wire::oap::{CHUNK, Decoder, MAX_FRAME};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::link::Shared;
use crate::error::{Error, ErrorKind};

/// Least room to read into.
const LEAST: usize = 4096;

const NO_FRAME: &str = "what comes is no frame";

/// Reads until the connection ends, and says why it did.
pub(super) async fn read(shared: &Shared, mut reading: impl AsyncRead + Unpin) -> Error {
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::with_capacity(CHUNK));
    loop {
        if let Err(error) = take_all(shared, &mut decoder, &mut buffer).await {
            return error;
        }
        if buffer.capacity() - buffer.len() < LEAST {
            buffer.reserve(CHUNK);
        }
        match reading.read_buf(&mut buffer).await {
            Ok(0) if is_none(&buffer) => return Error::new(ErrorKind::Internal, NO_FRAME),
            Ok(0) => return closed(),
            Ok(_) => shared.heard(),
            Err(error) => return closed().with_source(error),
        }
    }
}

/// Takes every frame that is all there.
async fn take_all(
    shared: &Shared,
    decoder: &mut Decoder,
    buffer: &mut BytesMut,
) -> Result<(), Error> {
    loop {
        let frame = decoder.decode(buffer).map_err(|malformed| {
            Error::new(ErrorKind::Internal, NO_FRAME).with_source(malformed)
        })?;
        let Some(frame) = frame else { return Ok(()) };
        let passed = shared.flight.lock().take(frame)?;
        if let Some((stream, piece)) = passed {
            // Whoever does not take it holds up this connection, which is its own. One that is gone
            // closes it.
            let _ = stream.send(piece).await;
        }
    }
}

/// Whether what has begun cannot be a frame, although it is too short to be refused as one: what
/// TLS says to those who do not speak it, for example.
fn is_none(begun: &[u8]) -> bool {
    begun.first_chunk().is_some_and(|len| u32::from_be_bytes(*len) as usize > MAX_FRAME)
}

fn closed() -> Error {
    Error::new(ErrorKind::Connection, "the connection to the service broke")
}

//! The limit: a server that reads frames as far as their length and writes the very same frames
//! back, all that have come in one piece.

use mailbox_wire::oap::MAX_FRAME;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const READ: usize = 128 * 1024;

/// Answers until the process ends.
pub(crate) async fn serve(listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        tokio::spawn(echo(stream));
    }
}

async fn echo(mut stream: TcpStream) {
    let mut input = Vec::with_capacity(READ);
    while stream.read_buf(&mut input).await.is_ok_and(|read| read > 0) {
        let Some(whole) = whole_frames(&input) else { return };
        if stream.write_all(&input[..whole]).await.is_err() {
            return;
        }
        input.drain(..whole);
    }
}

/// How many bytes are frames that are all there; nothing if one is too long.
fn whole_frames(bytes: &[u8]) -> Option<usize> {
    let mut whole = 0;
    while let Some(len) = bytes[whole..].first_chunk().map(|len| u32::from_be_bytes(*len)) {
        let len = len as usize;
        if !(4..=MAX_FRAME).contains(&len) {
            return None;
        }
        if whole + len > bytes.len() {
            break;
        }
        whole += len;
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_as_far_as_they_have_come() {
        let frames = [&[0, 0, 0, 6, 1, 2][..], &[0, 0, 0, 4], &[0, 0, 0, 5, 9]].concat();
        let ends = [(0, 0), (5, 0), (6, 6), (9, 6), (10, 10), (14, 10), (15, 15)];
        for (come, whole) in ends {
            assert_eq!(whole_frames(&frames[..come]), Some(whole), "{come}");
        }
        assert_eq!(whole_frames(&[0, 0, 0, 3]), None);
        assert_eq!(whole_frames(&[0xff; 4]), None);
    }
}

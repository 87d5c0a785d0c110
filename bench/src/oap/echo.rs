//! The limit: a server that reads frames as far as their length and writes the very same frames
//! back, all that have come in one piece. Told how long answers are, it writes frames so long
//! instead, which are otherwise the head of what was asked and zeros.

use std::sync::Arc;

use mailbox_wire::oap::{HEADER_LEN, MAX_FRAME};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const READ: usize = 128 * 1024;

/// How long answers are, by how long what was asked is. What is not listed is answered with itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lengths(Arc<[(usize, usize)]>);

impl Lengths {
    /// As words on a command line: `1100:250`.
    pub(crate) fn read(words: &[String]) -> Self {
        let pair = |word: &String| {
            let (asked, answer) = word.split_once(':')?;
            Some((asked.parse().ok()?, answer.parse().ok()?))
        };
        let pairs = words.iter().map(|word| pair(word).expect("two lengths, asked:answer"));
        let pairs: Arc<[(usize, usize)]> = pairs.collect();
        let frames = HEADER_LEN..=MAX_FRAME;
        let are_frames =
            pairs.iter().all(|(asked, answer)| frames.contains(asked) && frames.contains(answer));
        assert!(are_frames, "lengths of frames, not {words:?}");
        Self(pairs)
    }

    fn of(&self, asked: usize) -> Option<usize> {
        self.0.iter().find(|(other, _)| *other == asked).map(|(_, answer)| *answer)
    }
}

/// Answers until the process ends.
pub(crate) async fn serve(listener: TcpListener, lengths: Lengths) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        tokio::spawn(echo(stream, lengths.clone()));
    }
}

async fn echo(mut stream: TcpStream, lengths: Lengths) {
    let (mut input, mut out) = (Vec::with_capacity(READ), Vec::new());
    while stream.read_buf(&mut input).await.is_ok_and(|read| read > 0) {
        let Some(whole) = whole_frames(&input) else { return };
        let answers = if lengths.0.is_empty() {
            &input[..whole]
        } else {
            out.clear();
            answer(&input[..whole], &lengths, &mut out);
            &out
        };
        if stream.write_all(answers).await.is_err() {
            return;
        }
        input.drain(..whole);
    }
}

/// How many bytes are frames that are all there; nothing if one is too long.
fn whole_frames(bytes: &[u8]) -> Option<usize> {
    let mut whole = 0;
    while let Some(len) = frame_len(&bytes[whole..]) {
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

/// Answers frames that are all there.
fn answer(mut frames: &[u8], lengths: &Lengths, out: &mut Vec<u8>) {
    while let Some(len) = frame_len(frames) {
        let (frame, rest) = frames.split_at(len);
        frames = rest;
        match lengths.of(len) {
            None => out.extend_from_slice(frame),
            Some(answer) => {
                let end = out.len() + answer;
                out.extend_from_slice(&(answer as u32).to_be_bytes());
                out.extend_from_slice(&frame[4..HEADER_LEN]);
                out.resize(end, 0);
            }
        }
    }
}

fn frame_len(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|len| u32::from_be_bytes(*len) as usize)
}

#[cfg(test)]
mod tests {
    use mailbox_wire::oap::{APP_PROTO, Flags, Header};

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

    fn frame(slot: u64, payload: &[u8]) -> Vec<u8> {
        let header = Header::new(Flags::REQ, APP_PROTO, slot).sized(0, payload.len()).unwrap();
        [&header.to_bytes()[..], payload].concat()
    }

    #[test]
    fn answers_are_as_long_as_they_were_said_to_be() {
        let lengths = Lengths::read(&["48:40".to_owned(), "38:45".to_owned()]);
        let (longer, empty, other) = (frame(7, &[5; 10]), frame(8, &[]), frame(9, &[6; 3]));
        let mut out = Vec::new();
        answer(&[&longer[..], &empty, &other].concat(), &lengths, &mut out);
        assert_eq!(out, [frame(7, &[0; 2]), frame(8, &[0; 7]), other].concat());
    }

    #[test]
    #[should_panic(expected = "lengths of frames")]
    fn an_answer_shorter_than_a_header_is_none() {
        Lengths::read(&["48:37".to_owned()]);
    }
}

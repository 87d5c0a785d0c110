//! What a worker tells its parent, one line per event. Invariant: a line is written before an
//! attempt and another one after its answer, so that whoever reads the lines knows at least as much
//! as the worker did when it was killed.

use std::fmt;

/// Something that happened in a worker. Numbers are those of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The home is open.
    Opened,
    /// A message is about to be sent.
    TrySend(u64),
    /// It was accepted.
    Sent(u64),
    /// It was refused: it is not kept.
    SendRefused(u64),
    /// A message is about to be deleted: acknowledged, or deleted as a dead letter.
    TryDelete(u64),
    /// It was.
    Deleted(u64),
    /// It was not, and nothing changed.
    DeleteRefused(u64),
    /// A message was received, for the so-manieth time as its count has it.
    Delivered(u64, u32),
    /// A dead letter is about to be put back in line, where its count begins anew.
    TryRedrive(u64),
    /// A message was received that is not what was sent.
    Damaged(u64),
    /// A message was received that has no number.
    Unreadable,
    /// A call failed in a way that leaves its outcome open.
    Failed {
        /// Which call.
        call: String,
        /// The kind of error.
        kind: String,
        /// What the error said.
        text: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened => write!(f, "opened"),
            Self::TrySend(number) => write!(f, "try-send {number}"),
            Self::Sent(number) => write!(f, "sent {number}"),
            Self::SendRefused(number) => write!(f, "send-refused {number}"),
            Self::TryDelete(number) => write!(f, "try-ack {number}"),
            Self::Deleted(number) => write!(f, "acked {number}"),
            Self::DeleteRefused(number) => write!(f, "ack-refused {number}"),
            Self::Delivered(number, count) => write!(f, "got {number} {count}"),
            Self::TryRedrive(number) => write!(f, "try-redrive {number}"),
            Self::Damaged(number) => write!(f, "damaged {number}"),
            Self::Unreadable => write!(f, "unreadable"),
            Self::Failed { call, kind, text } => {
                let text = text.replace(['\n', '\r'], " ");
                write!(f, "failed {call} {kind} {text}")
            }
        }
    }
}

impl Event {
    /// Reads a line, without its end. `None` if it is not one of ours.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse::<u64>().ok();
        Some(match word {
            "opened" => Self::Opened,
            "unreadable" => Self::Unreadable,
            "try-send" => Self::TrySend(number()?),
            "sent" => Self::Sent(number()?),
            "send-refused" => Self::SendRefused(number()?),
            "try-ack" => Self::TryDelete(number()?),
            "acked" => Self::Deleted(number()?),
            "ack-refused" => Self::DeleteRefused(number()?),
            "got" => {
                let (number, count) = rest.split_once(' ')?;
                Self::Delivered(number.parse().ok()?, count.parse().ok()?)
            }
            "try-redrive" => Self::TryRedrive(number()?),
            "damaged" => Self::Damaged(number()?),
            "failed" => {
                let (call, rest) = rest.split_once(' ')?;
                let (kind, text) = rest.split_once(' ').unwrap_or((rest, ""));
                Self::Failed { call: call.into(), kind: kind.into(), text: text.into() }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_back_as_it_was_written() {
        let failed = Event::Failed {
            call: "send".to_owned(),
            kind: "Internal".to_owned(),
            text: "the disk is gone: EIO".to_owned(),
        };
        let all = [
            Event::Opened,
            Event::TrySend(1),
            Event::Sent(u64::MAX),
            Event::SendRefused(2),
            Event::TryDelete(3),
            Event::Deleted(4),
            Event::DeleteRefused(5),
            Event::Delivered(8, 3),
            Event::TryRedrive(7),
            Event::Damaged(6),
            Event::Unreadable,
            failed,
        ];
        for event in all {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
    }

    #[test]
    fn a_text_over_several_lines_stays_one_line() {
        let text = "one\ntwo".to_owned();
        let event = Event::Failed { call: "open".into(), kind: "Internal".into(), text };
        assert_eq!(event.to_string(), "failed open Internal one two");
    }

    #[test]
    fn other_lines_are_not_events() {
        for line in ["", "sent", "sent x", "sent 1 2", "thread panicked", "got 1", "failed"] {
            assert_eq!(Event::parse(line), None, "{line:?}");
        }
    }
}

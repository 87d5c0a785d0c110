//! Everything that can be answered.

use super::garbled::needed;
use super::v1::reply::Answer;
use super::{Garbled, v1};
use crate::call::Reply;

/// Each answer, by its name here and the name of its message.
macro_rules! answers {
    ($($variant:ident: $message:ident,)*) => {
        impl From<Reply> for v1::Reply {
            fn from(reply: Reply) -> Self {
                let answer = match reply {
                    $(Reply::$variant(it) => Answer::$variant(it.into()),)*
                };
                Self { answer: Some(answer) }
            }
        }

        impl TryFrom<v1::Reply> for Reply {
            type Error = Garbled;

            fn try_from(it: v1::Reply) -> Result<Self, Garbled> {
                match needed(it.answer, "answer")? {
                    $(Answer::$variant(it) => it.try_into(),)*
                }
            }
        }

        $(impl TryFrom<v1::$message> for Reply {
            type Error = Garbled;

            fn try_from(it: v1::$message) -> Result<Self, Garbled> {
                Ok(Self::$variant(it.try_into()?))
            }
        }

        impl TryFrom<Reply> for v1::$message {
            type Error = Garbled;

            /// Garbled if it is the answer to something else.
            fn try_from(reply: Reply) -> Result<Self, Garbled> {
                match reply {
                    Reply::$variant(it) => Ok(it.into()),
                    _ => Err(Garbled("answer")),
                }
            }
        })*
    };
}

answers! {
    Sent: SendResponse,
    SentBatch: SendBatchResponse,
    Received: RecvResponse,
    Done: Done,
    SettledBatch: SettleBatchResponse,
    Topics: ListTopicsResponse,
    Topic: Topic,
    Removed: RemoveTopicResponse,
    Purged: PurgeTopicResponse,
    Records: Records,
    Record: Record,
    Reprocessed: ReprocessResponse,
    Deleted: DeleteDeadResponse,
    Abilities: Abilities,
    Minted: MintCapabilityResponse,
    Revoked: RevokeCapabilityResponse,
    Rotated: RotateKeyResponse,
}

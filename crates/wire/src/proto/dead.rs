//! Dead letters: listed, put back in line, or deleted.

use super::v1;
use crate::{call, json};

mirror! {
    call::DeadListRequest = ListDeadRequest { topic, after, limit }
    json::Reprocessed = ReprocessResponse { reprocessed, remaining }
    json::Deleted = DeleteDeadResponse { deleted, remaining }
}

/// Which dead letters. A list of none is not the same as no list, which is all of them.
macro_rules! dead {
    ($($message:ident),*) => {$(
        impl From<json::DeadRequest> for v1::$message {
            fn from(it: json::DeadRequest) -> Self {
                let json::DeadRequest { topic, limit, msg_ids, reason } = it;
                let msg_ids = msg_ids.map(|msg_ids| v1::MessageIds { msg_ids });
                Self { topic, limit, msg_ids, reason }
            }
        }

        impl From<v1::$message> for json::DeadRequest {
            fn from(it: v1::$message) -> Self {
                let v1::$message { topic, limit, msg_ids, reason } = it;
                Self { topic, limit, msg_ids: msg_ids.map(|it| it.msg_ids), reason }
            }
        }
    )*};
}

dead!(ReprocessRequest, DeleteDeadRequest);

//! What went wrong.

use super::v1;
use crate::json;

mirror! {
    json::Problem = Problem {
        code, message, corr_id, kind, retry_after_ms, reason, field, topic, msg_id
    }
}

/// One in a box, either way.
#[expect(clippy::boxed_local, reason = "both sides have it in a box")]
pub(super) fn converted<T, U: From<T>>(problem: Box<T>) -> Box<U> {
    Box::new(U::from(*problem))
}

//! How messages are shown for debugging that have a payload, a receipt handle, a capability, or
//! what went wrong with a payload: with a few other fields. Messages that contain one of these show
//! it the same way. Which ones they are is said once more in `build.rs`.

use std::fmt;

use super::v1;

macro_rules! show {
    ($($message:ident: $($field:ident),*;)*) => {$(
        impl fmt::Debug for v1::$message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    )*};
}

show! {
    SendRequest: topic;
    BatchMessage: topic;
    Envelope: msg_id, topic, ts, attempt;
    Record: envelope, state, receivable_in_ms, death;
    AckRequest: msg_id;
    NackRequest: msg_id, delay_ms, dead;
    ExtendRequest: msg_id, visibility_ms;
    MintCapabilityResponse: token_id;
    RevokeCapabilityRequest: token_id;
    RotateKeyResponse: kid, previous_until;
}

impl fmt::Debug for v1::SettleItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettleItem")
            .field("op", &self.op())
            .field("msg_id", &self.msg_id)
            .finish_non_exhaustive()
    }
}

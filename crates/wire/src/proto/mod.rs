//! The service in protobuf: the messages of `proto/mailbox/v1/mailbox.proto`, and the way from them
//! to the shapes that all protocols share, and back. Invariant: nothing is lost on the way, and
//! nothing is guessed; what a message should have and has not is [`Garbled`].
//!
//! A method of a gRPC service is `call::Request::from(message)`, or `try_from` where a message can
//! be garbled; its answer is `message::try_from(reply)`. For frames of OAP/1 there are
//! [`read_request`] and [`write_reply`], and [`write_request`] and [`read_reply`] for clients.
//!
//! Fields that are not known are skipped, as protobuf wants it; JSON refuses them.

/// How a message and a shape with the same fields become each other. Both are taken apart field by
/// field, so that a field that is new in one of them is not forgotten.
macro_rules! mirror {
    ($($module:ident::$shape:ident = $message:ident { $($field:ident),* })*) => {$(
        impl From<$module::$shape> for v1::$message {
            fn from(it: $module::$shape) -> Self {
                let $module::$shape { $($field),* } = it;
                Self { $($field),* }
            }
        }

        impl From<v1::$message> for $module::$shape {
            fn from(it: v1::$message) -> Self {
                let v1::$message { $($field),* } = it;
                Self { $($field),* }
            }
        }
    )*};
}

mod capabilities;
#[cfg(feature = "grpc")]
mod codec;
mod dead;
mod detach;
mod envelope;
mod fields;
mod frame;
mod garbled;
mod hash;
mod policy_change;
mod problem;
mod reply;
mod request;
#[cfg(feature = "grpc")]
mod rich;
mod send;
mod settle;
mod shown;
mod stream;
mod topics;

pub use crate::call::Asked;
#[cfg(feature = "grpc")]
pub use codec::{Codec, Reader, Writer};
pub use detach::Detach;
pub use fields::{Counted, MAX_FIELDS};
pub use frame::{read_reply, read_request, write_received, write_reply, write_request};
pub use garbled::{Garbled, Unreadable};
#[cfg(feature = "grpc")]
pub use rich::{details, problem};
pub use stream::{Streamed, read_streamed, write_sign_of_life, write_streamed};

/// The compiled description of `mailbox.v1`, comments included: for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg_attr(
    feature = "grpc",
    expect(
        unused_qualifications,
        clippy::allow_attributes,
        clippy::clone_on_ref_ptr,
        reason = "generated"
    )
)]
pub mod v1 {
    //! The messages of package `mailbox.v1`, and with the feature `grpc` its service. Generated.

    include!(concat!(env!("OUT_DIR"), "/mailbox.v1.rs"));
}

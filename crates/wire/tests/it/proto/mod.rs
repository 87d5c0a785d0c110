//! The service in protobuf.

mod answers;
#[cfg(feature = "grpc")]
mod codec;
mod described;
mod descriptors;
mod hostile;
mod questions;
mod round_trip;
mod secrets;
mod slices;
mod streams;

/// Text that is nowhere else.
fn text(what: &str) -> String {
    format!("<{what}>")
}

fn some(what: &str) -> Option<String> {
    Some(text(what))
}

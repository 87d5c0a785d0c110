//! What goes over the wire, shared by the service and its clients: pure functions from bytes and to
//! bytes. No clock, disk, network or randomness.

pub mod attributes;
pub mod bounds;
pub mod call;
pub mod capability;
pub mod correlation;
pub mod hash;
pub mod json;
#[cfg(feature = "oap")]
pub mod oap;
pub mod object;
pub mod payload;
#[cfg(feature = "proto")]
pub mod proto;
pub mod reserved;
mod texts;
pub mod unreadable;

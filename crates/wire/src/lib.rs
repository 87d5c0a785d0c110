//! What goes over the wire, shared by the service and its clients: pure functions from bytes and to
//! bytes. No clock, disk, network or randomness.

pub mod attributes;
pub mod capability;
pub mod correlation;
pub mod hash;
pub mod json;
pub mod object;
pub mod payload;
pub mod reserved;

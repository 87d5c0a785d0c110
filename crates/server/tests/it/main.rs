//! The service, as clients find it.
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

mod blueprint;
mod bombs;
mod canary;
mod capabilities;
mod cuts;
mod door;
mod drain;
mod duplicates;
mod fan_out;
mod grpc;
mod guests;
mod half_closed;
mod integrity;
mod leaving;
mod limits;
mod malformed;
mod oap;
mod oap_large;
mod observability;
mod openapi;
mod order;
mod pressure;
mod python;
mod rig;
mod schema;
mod slow;
mod stream;
mod together;
mod traces;
mod visibility;
mod windows;

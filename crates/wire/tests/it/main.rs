//! The wire from outside. Capabilities: against other implementations, against forgers, and what
//! they allow. Frames, and protobuf: there and back, and what is refused.
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

mod forged;
mod golden;
mod granted;
mod libmacaroon_oracle;
mod minted;
mod narrowed;
#[cfg(feature = "oap")]
mod oap;
mod pieces;
#[cfg(feature = "proto")]
mod proto;
mod python_oracle;

//! Capabilities from outside: against other implementations, against forgers, and what they allow.
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

mod forged;
mod golden;
mod granted;
mod libmacaroon_oracle;
mod minted;
mod narrowed;
mod pieces;
mod python_oracle;

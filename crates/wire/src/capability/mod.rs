//! Capabilities: who may do what to which mailbox, and until when.
//!
//! A capability is a macaroon: an identifier, a list of caveats, and a tag that binds them by a
//! chain of HMAC-SHA256. Whoever holds one can add a caveat, offline and without any key; nobody
//! without the root key can take one away. The bytes are the version 2 binary format of
//! libmacaroons, as base64url without padding, so that a macaroon library of any language can
//! narrow a capability.
//!
//! The identifier is `v1 <kid> <token id>`: `kid` names the root key and is 1 to 32 of
//! `[A-Za-z0-9_-]`, the token id is 1 to 64 of the same. The location, which no tag covers, is
//! `mailbox` when written and not looked at when read.
//!
//! # Limits
//! At most 4 KiB of bytes and 64 caveats. Every byte has one reading: shortest lengths only, fields
//! in order, none twice, nothing after the tag, canonical base64.
//!
//! # Caveats
//! ASCII text, `key = value`: one space on each side of the `=`, none elsewhere. Numbers are
//! decimal, without sign or leading zeros. Lists are separated by a comma alone.
//!
//! | caveat | holds if |
//! |---|---|
//! | `op = send,recv` | it is one of these: `send`, `recv`, `ack`, `nack`, `admin`; none twice |
//! | `topic = jobs,tenant-a:*` | the topic is listed, or starts with what precedes a final `*` |
//! | `exp = 2030-01-01T00:00:00Z` | it is earlier than that |
//! | `nbf = 2029-12-31T00:00:00Z` | it is that time or later; clocks may differ by 30 s |
//! | `max_bytes = 65536` | the request is not larger |
//! | `rate = 100/s` | not more often than that; `/s`, `/m` or `/h`, 1 to 4294967295 times |
//! | `quota_ops = 1000` | no more operations than that have been done with the token id |
//! | `quota_bytes = 1000000` | no more bytes than that have been moved with the token id |
//! | `ip = 10.0.0.0/8,::1` | the peer is in a listed network; no bits set beyond the prefix |
//! | `tenant = a` | it is that tenant; 1 to 64 of `[A-Za-z0-9_-]` |
//!
//! A topic is 1 to 80 of `[A-Za-z0-9._:-]`, as a mailbox name is. `*` stands last or not at all,
//! and alone it means every topic. Times are RFC 3339 with capital `T` and either `Z` or an offset;
//! digits beyond milliseconds are dropped. An IPv4 address that comes mapped into IPv6 counts as
//! IPv4, and a network is not written in the mapped form.
//!
//! Every caveat has to hold, so several of one kind narrow. One that is unknown or does not parse
//! refuses the whole capability, and so does a third-party caveat. A capability without caveats is
//! refused, and so is one without `exp`, unless an `ip` caveat keeps it on this machine
//! (`ip = 127.0.0.0/8,::1/128`): that is the operator's.

mod caveat;
mod chain;
mod format;
mod grant;
mod ids;
mod key;
mod networks;
mod number;
mod ops;
mod rate;
mod refused;
mod timestamp;
mod token;
mod topics;

pub use caveat::{BadCaveat, Caveat};
pub use grant::{Grant, NBF_SKEW_MS, Quotas, Use};
pub use ids::{BadId, Id, KeyId, Tenant, TokenId};
pub use key::RootKey;
pub use networks::Networks;
pub use ops::{Op, Ops};
pub use rate::{Period, Rate};
pub use refused::Refused;
pub use timestamp::Timestamp;
pub use token::{CannotMint, Capability, MAX_BYTES, MAX_CAVEATS, MAX_TEXT};
pub use topics::Topics;

//! The bounds of the contract's section L that no backend may exceed. Backends may set lower ones
//! in their `Abilities`; homes check against those before anything reaches the queue.

use std::time::Duration;

/// Longest name of a mailbox, in characters.
pub const NAME_LEN: usize = 80;
/// Most attributes of one message.
pub const ATTRIBUTES: usize = 64;
/// How keys of attributes begin that are not the sender's own but a service's.
pub const RESERVED_PREFIX: &str = "mailbox.";
/// Most of those, beside the sender's own.
pub const RESERVED_ATTRIBUTES: usize = 8;
/// Longest key of an attribute, in bytes.
pub const ATTRIBUTE_KEY_LEN: usize = 256;
/// Longest value of an attribute, in bytes.
pub const ATTRIBUTE_VALUE_LEN: usize = 8 * 1024;
/// Longest reply address, in bytes.
pub const REPLY_TO_LEN: usize = 1024;
/// Longest idempotency key, in bytes.
pub const IDEMPOTENCY_KEY_LEN: usize = 128;
/// Longest ordering group, in bytes.
pub const GROUP_LEN: usize = 128;
/// Longest text of an error kept with a nack or a dead letter, in bytes.
pub const ERROR_TEXT_LEN: usize = 8 * 1024;
/// Largest payload by default, in bytes.
pub const PAYLOAD_LEN: usize = 1024 * 1024;
/// Largest payload that a library user may configure, in bytes.
pub const PAYLOAD_LEN_MAX: usize = 256 * 1024 * 1024;
/// Longest visibility timeout, nack delay and extension (V1).
pub const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(43_200);
/// Longest delay of a send (D8).
pub const DELAY: Duration = Duration::from_secs(43_200);
/// Most messages that one queue can hold in all states: slots are 32-bit numbers.
pub const MESSAGES: u32 = u32::MAX - 1;

//! How long lists and maps may be that are read. Invariant: what anybody sends takes a bounded
//! amount of memory beside its own length; what is a few bytes on the wire can be some hundred
//! there. And whatever a service takes fits, with room to spare: so that it is the service that
//! says what is too much.

/// Most objects of a list in JSON: more than any call takes.
pub const OBJECTS: usize = 1024;

/// Most attributes of a message: a sender may say 64, and a service adds some.
pub const ATTRIBUTES: usize = 128;

/// Most texts of all lists of texts together, and most attributes of all messages together: more
/// than 256 messages have, each with as many as it may.
pub const TEXTS: usize = 20_000;

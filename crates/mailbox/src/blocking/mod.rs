//! The same mailbox without async.

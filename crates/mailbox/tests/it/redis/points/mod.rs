//! What the Python side is known to get wrong, and ours must not: nine points, and for each what
//! the mistake looks like, planted in ours or made by the other side.

mod batches;
mod deadlines;
mod lifetime;
mod long_poll;
mod lost_replies;
mod plain_errors;

//! What can be asked of the service, whichever protocol asks. Each call checks the capability,
//! counts the use, and passes on to the store; queue logic is the store's.

mod capabilities;
mod dead;
mod handle;
mod letter;
mod looking;
mod managing;
mod receive;
mod send;
mod settle;
mod shard;
mod stream;

pub(crate) use handle::Handle;
pub(crate) use letter::{Facts, envelope, outgoing, weight};
pub(crate) use receive::HandOver;
pub(crate) use settle::{Delivery, Item, Wish};
pub(crate) use shard::shard;
pub(crate) use stream::{Next, Stream};

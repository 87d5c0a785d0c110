//! What can be asked of the service, whichever protocol asks. Each call checks the capability,
//! counts the use, and passes on to the store; queue logic is the store's.

mod alike;
mod answer;
mod capabilities;
mod convert;
mod dead;
mod handle;
mod letter;
mod looking;
mod managing;
mod post;
mod receive;
mod send;
mod settle;
mod several;
mod shard;
mod stream;
mod wish;

pub(crate) use alike::likeness;
pub(crate) use answer::{Answered, Asking, purpose};
pub(crate) use handle::Handle;
pub(crate) use letter::Facts;
pub(crate) use receive::HandOver;
pub(crate) use shard::shard;
pub(crate) use stream::{Next, Stream};

use letter::{envelope, outgoing, weight};
use settle::{Delivery, Item, Wish};

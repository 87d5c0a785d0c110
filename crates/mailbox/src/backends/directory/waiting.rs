//! Receiving, and waiting for something to receive.

use std::sync::Arc;

use crate::backend::Delivery;
use crate::backends::directory::inbox::Inbox;
use crate::backends::directory::off_the_runtime;
use crate::error::Result;
use crate::home::waiting::Seat;
use crate::options::ReceiveOptions;

/// Takes up to `max_messages`, waiting for the first.
///
/// # Cancel safety
/// What was taken and not handed over is given back; whoever was told of a message that it did not
/// take passes that on.
pub(crate) async fn receive(inbox: &Arc<Inbox>, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
    let deadline = inbox.now().after(options.wait);
    let (most, timeout) = (options.max_messages as usize, options.visibility_timeout);
    let mut seat = Seat::new(&**inbox);
    loop {
        let taker = Arc::clone(inbox);
        let catch = off_the_runtime(move || taker.take(most, timeout)).await??;
        if !catch.is_empty() {
            seat.leave();
            return Ok(catch.deliver());
        }
        let now = inbox.now();
        if now >= deadline {
            return Ok(Vec::new());
        }
        if inbox.sit_down(&mut seat, now, deadline)? {
            let looks_again = tokio::time::sleep(inbox.look_again_in());
            tokio::select! {
                () = seat.wait() => {}
                () = looks_again => {}
            }
        }
    }
}

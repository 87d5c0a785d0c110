//! Against a service that does as it is told.

mod answers;
mod calls;
mod cuts;
mod gathering;
mod peer;
mod receives;
mod renewal;
mod runtimes;

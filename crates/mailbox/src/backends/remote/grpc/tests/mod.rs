//! Against a service that does as it is told.

mod calls;
mod cuts;
mod peer;
mod receives;

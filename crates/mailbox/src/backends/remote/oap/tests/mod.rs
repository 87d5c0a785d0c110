//! Against a service that does as it is told.

mod answers;
mod cuts;
mod damage;
mod doubt;
mod ends;
mod gathering;
mod late;
mod manage;
mod peer;
mod places;
mod receives;
mod renewal;
mod runtimes;
mod streams;
mod tls;

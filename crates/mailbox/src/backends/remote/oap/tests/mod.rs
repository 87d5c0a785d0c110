//! Against a service that does as it is told.

mod answers;
mod cuts;
mod damage;
mod gathering;
mod late;
mod manage;
mod peer;
mod places;
mod receives;
mod runtimes;
mod streams;
mod tls;

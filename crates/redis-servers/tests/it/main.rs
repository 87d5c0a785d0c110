//! Real servers: started, killed, paused, and ended together with the process that started them.

mod cluster;
mod node;
mod process_end;
mod sentinels;
mod shared;
mod watch;

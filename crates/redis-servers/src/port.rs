//! Ports that nobody else takes.
//!
//! Invariant: while a [`Reservation`] lives, no other process that uses this crate gets the same
//! port, not even while the server is down between a kill and a restart. The mark is a UDP socket
//! of the same number: Redis does not use UDP, and the system frees it when the process ends.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{TcpListener, UdpSocket};

/// Below the ports that systems give to outgoing connections: one of those could otherwise sit on
/// the port of a server that is down for a moment.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;
/// So many ports are tried before the machine counts as full.
const ATTEMPTS: usize = 500;

/// A port of one server.
#[derive(Debug)]
pub(crate) struct Reservation {
    port: u16,
    /// Held, not used: none for a port that the caller chose.
    _mark: Option<UdpSocket>,
}

impl Reservation {
    /// A port that is free on `host` now.
    pub(crate) fn free(host: &str) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let port = random_port();
            // Always the same address, so that servers on different ones meet here as well.
            let Ok(mark) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
            match TcpListener::bind((host, port)) {
                Ok(_) => return Ok(Self { port, _mark: Some(mark) }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no free port on {host}")))
    }

    /// A port that the caller answers for.
    pub(crate) fn fixed(port: u16) -> Self {
        Self { port, _mark: None }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

fn random_port() -> u16 {
    // Every RandomState has other keys: random enough to spread processes over the range.
    let random = RandomState::new().build_hasher().finish();
    let offset = u16::try_from(random % u64::from(COUNT)).expect("less than COUNT, which is a u16");
    FIRST + offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_until_the_reservation_ends() {
        let first = Reservation::free("127.0.0.1").expect("a free port");
        let port = first.port();
        assert!(UdpSocket::bind(("127.0.0.1", port)).is_err(), "somebody else got port {port}");
        TcpListener::bind(("127.0.0.1", port)).expect("left to the server");
        drop(first);
        UdpSocket::bind(("127.0.0.1", port)).expect("free again");
    }
}

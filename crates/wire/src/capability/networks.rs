//! Which addresses a capability may be used from. IPv4 that comes mapped into IPv6 is IPv4 here,
//! so a rule about one cannot be passed by writing the other.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::caveat::BadCaveat;
use super::number::number;

/// A list of networks, never empty, written `10.0.0.0/8,::1/128`. A bare address is a network of
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

/// What this machine calls itself; either will do for a peer that has no address.
pub(super) const LOOPBACK: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl Networks {
    /// This machine: `127.0.0.0/8,::1/128`.
    #[must_use]
    pub fn loopback() -> Self {
        let v4 = Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 };
        let v6 = Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 };
        Self(vec![v4, v6])
    }

    /// Whether `address` is in one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// Whether nobody but this machine is in them.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.0.iter().all(|network| match network.address {
            IpAddr::V4(address) => address.is_loopback() && network.prefix >= 8,
            IpAddr::V6(address) => address.is_loopback() && network.prefix == 128,
        })
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        if address.to_canonical() != address {
            return None;
        }
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => u8::try_from(number(prefix)?).ok().filter(|bits| *bits <= width)?,
            None => width,
        };
        let network = Self { address, prefix };
        (network.masked(address)? == address).then_some(network)
    }

    fn contains(self, address: IpAddr) -> bool {
        self.masked(address) == Some(self.address)
    }

    /// `address` without the bits beyond the prefix; nothing if it is of the other family.
    fn masked(self, address: IpAddr) -> Option<IpAddr> {
        match (self.address, address) {
            (IpAddr::V4(_), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                Some(IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask)))
            }
            (IpAddr::V6(_), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                Some(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask)))
            }
            _ => None,
        }
    }
}

impl FromStr for Networks {
    type Err = BadCaveat;

    fn from_str(text: &str) -> Result<Self, BadCaveat> {
        let networks = text.split(',').map(Network::parse).collect::<Option<Vec<_>>>();
        networks.map(Self).ok_or(BadCaveat::Networks)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, network) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}/{}", network.address, network.prefix)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(text: &str) -> Networks {
        text.parse().unwrap()
    }

    fn allows(text: &str, address: &str) -> bool {
        networks(text).contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_what_shares_its_prefix() {
        assert!(allows("10.0.0.0/8", "10.255.1.2"));
        assert!(!allows("10.0.0.0/8", "11.0.0.0"));
        assert!(allows("192.168.1.7", "192.168.1.7"));
        assert!(!allows("192.168.1.7", "192.168.1.6"));
        assert!(allows("0.0.0.0/0", "255.255.255.255"));
        assert!(!allows("0.0.0.0/0", "::1"));
        assert!(allows("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!allows("2001:db8::/32", "2001:db9::1"));
        assert!(allows("::/0", "ffff::"));
        assert!(allows("10.0.0.0/8,::1", "::1"));
    }

    #[test]
    fn ipv4_mapped_into_ipv6_is_ipv4() {
        assert!(allows("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!allows("::/0", "::ffff:10.1.2.3"));
        assert!(!allows("::/0", "10.1.2.3"));
        assert_eq!("::ffff:10.0.0.0/104".parse::<Networks>(), Err(BadCaveat::Networks));
    }

    #[test]
    fn only_loopback_networks_are_this_machine() {
        for local in ["127.0.0.0/8,::1/128", "127.0.0.1", "::1", "127.4.0.0/16"] {
            assert!(networks(local).is_loopback(), "{local}");
        }
        for wider in ["127.0.0.0/8,10.0.0.1", "::/127", "126.0.0.0/7", "0.0.0.0/0", "::/0", "::2"] {
            assert!(!networks(wider).is_loopback(), "{wider}");
        }
        assert!(Networks::loopback().is_loopback());
        assert_eq!(Networks::loopback().to_string(), "127.0.0.0/8,::1/128");
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in [
            "",
            ",",
            "10.0.0.0/8,",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "::1/129",
            "10.0.0.0/08",
            "::1/64",
            "10.0.0.0/",
            "/8",
            "010.0.0.0/8",
            "10.0.0/8",
            "[::1]",
            "fe80::1%eth0",
            "localhost",
            "10.0.0.0 /8",
            "10.0.0.0/+8",
            "*",
        ] {
            assert_eq!(bad.parse::<Networks>(), Err(BadCaveat::Networks), "{bad:?}");
        }
    }
}

//! Networks from which a user may connect.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network in CIDR notation, such as `10.0.0.0/8`; or `unix`, the Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The Unix socket.
    Unix,
    /// Addresses whose first bits are these.
    Ip {
        /// Its first address.
        address: IpAddr,
        /// How many bits count.
        bits: u8,
    },
}

impl Network {
    /// Whether a client with this address is in it. A client of the Unix socket has none.
    #[must_use]
    pub fn contains(&self, client: Option<IpAddr>) -> bool {
        match (self, client.map(|client| client.to_canonical())) {
            (Self::Unix, None) => true,
            (Self::Ip { address: IpAddr::V4(own), bits }, Some(IpAddr::V4(client))) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
                own.to_bits() & mask == client.to_bits() & mask
            }
            (Self::Ip { address: IpAddr::V6(own), bits }, Some(IpAddr::V6(client))) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
                own.to_bits() & mask == client.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// Not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a network; write one as 10.0.0.0/8, 2001:db8::/32 or unix")]
pub struct InvalidNetwork;

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        if text == "unix" {
            return Ok(Self::Unix);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| InvalidNetwork)?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| InvalidNetwork)?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        let network = Self::Ip { address, bits };
        // 10.1.2.3/8 is a mistake: either the address or the number of bits is wrong.
        let stray = match address {
            IpAddr::V4(own) => own.to_bits().checked_shl(u32::from(bits)).unwrap_or(0) != 0,
            IpAddr::V6(own) => own.to_bits().checked_shl(u32::from(bits)).unwrap_or(0) != 0,
        };
        if bits > most || stray { Err(InvalidNetwork) } else { Ok(network) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix => f.write_str("unix"),
            Self::Ip { address, bits } => write!(f, "{address}/{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(network: &str, client: &str) -> bool {
        network.parse::<Network>().unwrap().contains(client.parse().ok())
    }

    #[test]
    fn only_the_first_bits_count() {
        assert!(holds("10.0.0.0/8", "10.255.1.2") && !holds("10.0.0.0/8", "11.0.0.0"));
        assert!(holds("0.0.0.0/0", "8.8.8.8") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("127.0.0.1", "127.0.0.1") && !holds("127.0.0.1", "127.0.0.2"));
        assert!(holds("2001:db8::/32", "2001:db8:ffff::1") && !holds("2001:db8::/32", "2001:db9::"));
        assert!(holds("::/0", "::1"));
        // A listener for both families reports IPv4 clients like this.
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(holds("unix", "") && !holds("unix", "127.0.0.1") && !holds("0.0.0.0/0", ""));
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in
            ["", "10.0.0.0/33", "::/129", "10.1.2.3/8", "10.0.0.0/-1", "10.0.0.0/", "host", "10/8", "UNIX"]
        {
            assert_eq!(bad.parse::<Network>(), Err(InvalidNetwork), "{bad}");
        }
        assert_eq!("2001:db8::/32".parse::<Network>().unwrap().to_string(), "2001:db8::/32");
    }
}

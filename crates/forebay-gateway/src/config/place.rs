//! Which addresses are the same place.

use std::net::{IpAddr, SocketAddr};

use super::GatewayConfig;

/// Whether `[::]` is for IPv6 alone, as `listen` has an address of IPv4 with the same port. Otherwise, it is for both.
fn is_only_v6(address: SocketAddr, listen: &[SocketAddr]) -> bool {
    let is_v4 = |other: &SocketAddr| other.port() == address.port() && other.ip().to_canonical().is_ipv4();
    address.is_ipv6() && address.ip().is_unspecified() && listen.iter().any(is_v4)
}

/// The one of `listen` where clients of another address come, too.
pub(super) fn in_the_way(address: SocketAddr, listen: &[SocketAddr]) -> Option<SocketAddr> {
    listen.iter().copied().find(|other| overlap((address, false), (*other, is_only_v6(*other, listen))))
}

/// The one of `listen` before this one where clients of it come, too.
pub(super) fn before(at: usize, listen: &[SocketAddr]) -> Option<SocketAddr> {
    let of_listen = |address: SocketAddr| (address, is_only_v6(address, listen));
    let address = of_listen(*listen.get(at)?);
    listen.get(..at)?.iter().copied().find(|other| overlap(address, of_listen(*other)))
}

/// Whether there is a client that could mean both. Each of them may be for IPv6 alone.
fn overlap(one: (SocketAddr, bool), other: (SocketAddr, bool)) -> bool {
    let ((one, one_only_v6), (other, other_only_v6)) = (one, other);
    // With port 0, the system gives each of them another port.
    one.port() == other.port()
        && one.port() != 0
        && (covers(one.ip(), one_only_v6, other.ip()) || covers(other.ip(), other_only_v6, one.ip()))
}

fn covers(own: IpAddr, only_v6: bool, other: IpAddr) -> bool {
    let (own, other) = (own.to_canonical(), other.to_canonical());
    match own {
        IpAddr::V6(any) if any.is_unspecified() => other.is_ipv6() || !only_v6,
        IpAddr::V4(any) if any.is_unspecified() => other.is_ipv4(),
        own => own == other,
    }
}

impl GatewayConfig {
    /// Whether this is `[::]` without IPv4, which has an address of its own.
    pub(crate) fn is_only_v6(&self, address: SocketAddr) -> bool {
        is_only_v6(address, &self.listen)
    }

    /// The address of the gateway's where clients of this one would come, too.
    #[must_use]
    pub fn in_the_way_of(&self, address: SocketAddr) -> Option<SocketAddr> {
        let peers = self.peers.as_ref().map(|peers| peers.listen);
        in_the_way(address, &self.listen).or_else(|| in_the_way(address, peers.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn clients_of_an_address_may_come_to_another() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("[::]:1", "[::1]:1", true),
            ("[::]:1", "127.0.0.1:1", true),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
        ] {
            let (one, other) = (address(one), address(other));
            assert_eq!(in_the_way(one, &[other]).is_some(), expected, "{one} {other}");
            assert_eq!(in_the_way(other, &[one]).is_some(), expected, "{other} {one}");
        }
    }

    /// As with PgBouncer and PostgreSQL, which have a socket for each family.
    #[test]
    fn both_families_can_have_all_addresses_of_a_port() {
        let listen = ["[::]:1", "0.0.0.0:1", "[::]:2", "[::1]:2"].map(address);
        let found: Vec<_> = (0..listen.len()).map(|at| before(at, &listen)).collect();
        assert_eq!(found, [None, None, None, Some(listen[2])]);
        assert!(is_only_v6(listen[0], &listen) && !is_only_v6(listen[2], &listen));
        assert!(!is_only_v6(listen[3], &listen));
    }
}

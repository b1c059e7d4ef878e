//! Which addresses count as one place.

use std::net::{IpAddr, Ipv6Addr};

/// The part that counts as one address: for IPv6 the first 64 bits, which is the network of one subscriber.
pub(crate) fn place_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

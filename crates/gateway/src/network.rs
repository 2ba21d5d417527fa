//! Networks of addresses: whom to believe, and which relays are private.

use std::net::IpAddr;

use ipnet::IpNet;

/// An address, or all that share its first bits: `10.0.0.0/8`.
pub(crate) fn parse(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| "expected ADDRESS or ADDRESS/BITS, as in 10.0.0.0/8".to_owned())
}

/// Whether the address is of this machine or of a private network (RFC 1918, 3927, 4193 and 4291).
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_not_private() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("172.16.0.1", true),
            ("192.168.0.1", true),
            ("169.254.0.1", true),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("::ffff:10.0.0.1", true),
            ("0.0.0.0", false),
            ("172.32.0.1", false),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("::ffff:192.0.2.1", false),
        ] {
            assert_eq!(is_private(address.parse().unwrap()), expected, "{address}");
        }
    }
}

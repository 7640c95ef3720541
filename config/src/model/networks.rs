//! A set of networks that finds an address in few steps, however many networks a tenant lists.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use ipnet::IpNet;
use serde::Serialize;

/// A set of networks: as they were listed, for people, and with the same addresses in as few networks as possible, for
/// look-ups.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Networks {
    listed: Box<[IpNet]>,
    /// Sorted, without overlaps, neighbours merged.
    #[serde(skip)]
    merged: Box<[IpNet]>,
}

impl Networks {
    /// Returns `true` if one of the networks has the address. An IPv4 network has no IPv6 address, also not one that
    /// embeds an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // Only the last network that does not begin after the address can have it.
        let after = self.merged.partition_point(|network| network.network() <= address);
        after.checked_sub(1).and_then(|last| self.merged.get(last)).is_some_and(|network| network.contains(&address))
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let listed: Vec<IpNet> = networks.into_iter().collect();
        Self { merged: IpNet::aggregate(&listed).into(), listed: listed.into() }
    }
}

impl<const N: usize> From<[IpNet; N]> for Networks {
    fn from(networks: [IpNet; N]) -> Self {
        networks.into_iter().collect()
    }
}

impl Deref for Networks {
    type Target = [IpNet];

    /// The networks as listed.
    fn deref(&self) -> &[IpNet] {
        &self.listed
    }
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listed.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(networks: &[&str], merged: &str, within: &[&str], outside: &[&str]) {
        let given: Vec<IpNet> = networks.iter().map(|network| network.parse().unwrap()).collect();
        let set: Networks = given.iter().copied().collect();
        let found: Vec<String> = set.merged.iter().map(ToString::to_string).collect();
        assert_eq!((&*set, &*found.join(" ")), (&*given, merged));
        for (addresses, want) in [(within, true), (outside, false)] {
            for address in addresses {
                let address = address.parse().unwrap();
                assert_eq!(set.contains(address), want, "{networks:?} {address}");
                assert_eq!(given.iter().any(|network| network.contains(&address)), want, "{networks:?} {address}");
            }
        }
    }

    #[test]
    fn a_set_has_the_addresses_of_its_networks() {
        check(&[], "", &[], &["0.0.0.0", "::"]);
        check(
            &["192.0.2.1/32", "10.0.0.0/8"],
            "10.0.0.0/8 192.0.2.1/32",
            &["10.0.0.0", "10.255.255.255", "192.0.2.1"],
            &["9.255.255.255", "11.0.0.0", "192.0.2.0", "192.0.2.2", "255.255.255.255", "::ffff:10.0.0.1", "::"],
        );
        // A small network behind a large one does not hide it.
        check(&["10.1.0.0/16", "10.0.0.0/8"], "10.0.0.0/8", &["10.200.0.1", "10.1.2.3"], &["11.0.0.0"]);
        check(
            &["10.0.2.0/24", "10.0.0.0/24", "10.0.1.0/24"],
            "10.0.0.0/23 10.0.2.0/24",
            &["10.0.0.0", "10.0.2.255"],
            &["10.0.3.0"],
        );
        check(&["10.9.8.7/8"], "10.0.0.0/8", &["10.0.0.0", "10.255.255.255"], &["11.0.0.0"]);
        check(&["0.0.0.0/0"], "0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::", "ffff::"]);
        check(&["::/0"], "::/0", &["::", "::ffff:10.0.0.1", "ffff::"], &["0.0.0.0", "255.255.255.255"]);
        check(
            &["2001:db8::/32", "::1/128", "10.0.0.0/8"],
            "10.0.0.0/8 ::1/128 2001:db8::/32",
            &["::1", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "10.0.0.1"],
            &["::", "::2", "2001:db7::1", "2001:db9::", "255.0.0.1"],
        );
        check(
            &["255.255.255.255/32", "0.0.0.0/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"],
            "0.0.0.0/32 255.255.255.255/32 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
            &["0.0.0.0", "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
            &["0.0.0.1", "255.255.255.254", "::"],
        );
    }

    #[test]
    fn an_address_is_found_among_many_networks() {
        let every_second = |third: u16| (0..=255_u8).step_by(2).map(move |last| [10, 0, third as u8, last]);
        let set: Networks =
            (0..=255).flat_map(every_second).map(|octets| IpNet::from(IpAddr::from(octets))).rev().collect();
        assert_eq!(set.merged.len(), 256 * 128);
        for last in 0..=255 {
            assert_eq!(set.contains(IpAddr::from([10, 0, 77, last])), last % 2 == 0, "{last}");
        }
    }
}

//! The hosts that the operator allows in URLs of policies.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// The hosts that URLs in policies may lead to, besides what no object may name; all of them by default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UrlHosts(Arc<[UrlHost]>);

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
enum UrlHost {
    /// The host of this name, in lower case.
    Name(Box<str>),
    /// The hosts below this name, which begins with a dot.
    Below(Box<str>),
    /// Hosts with an address of this network.
    Network(IpNet),
}

impl UrlHosts {
    /// Reads entries: names, names after `*.` for all hosts below them at any depth, addresses, and networks.
    ///
    /// # Errors
    /// The first entry that is none of them.
    pub fn read(entries: &[String]) -> Result<Self, String> {
        let read = entries.iter().map(|text| entry(text).ok_or_else(|| text.clone()));
        read.collect::<Result<Vec<_>, _>>().map(|all| Self(all.into()))
    }

    /// Whether a host may be looked up, by its name in lower case without a dot at its end. An address has no name.
    #[must_use]
    pub fn may_look_up(&self, name: &str) -> bool {
        self.allows(name, None) || self.0.iter().any(|it| matches!(it, UrlHost::Network(_)))
    }

    /// Whether a connection to an address of a host is allowed; `None` is an address of no network.
    #[must_use]
    pub fn allows(&self, name: &str, address: Option<IpAddr>) -> bool {
        let address = address.map(|address| address.to_canonical());
        self.0.is_empty()
            || self.0.iter().any(|it| match it {
                UrlHost::Name(own) => **own == *name,
                UrlHost::Below(parent) => name.len() > parent.len() && name.ends_with(&**parent),
                UrlHost::Network(network) => address.is_some_and(|address| network.contains(&address)),
            })
    }
}

fn entry(text: &str) -> Option<UrlHost> {
    let address = || text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    if let Some(network) = text.parse().ok().or_else(address) {
        return Some(UrlHost::Network(network));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let (is_below, labels) = name.strip_prefix("*.").map_or((false, &*name), |parent| (true, parent));
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    // A last label of digits would be an address that is written in an unusual way.
    let is_number = labels.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if labels.len() > 253 || is_number || !labels.split('.').all(is_label) {
        return None;
    }
    Some(if is_below { UrlHost::Below(format!(".{labels}").into()) } else { UrlHost::Name(labels.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares whether a host with this address is allowed by comma-separated entries.
    #[track_caller]
    fn check(entries: &str, name: &str, address: &str, want: bool) {
        let entries: Vec<String> = entries.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
        let hosts = UrlHosts::read(&entries).unwrap();
        assert_eq!(hosts.allows(name, Some(address.parse().unwrap())), want, "{name} at {address}");
        assert!(hosts.may_look_up(name) || !want);
    }

    #[test]
    fn hosts_are_allowed_by_their_names_or_their_addresses() {
        check("", "login.example", "192.0.2.1", true);
        check("login.example", "login.example", "192.0.2.1", true);
        check("Login.Example.", "login.example", "192.0.2.1", true);
        check("login.example", "a.login.example", "192.0.2.1", false);
        check("*.example", "login.example", "192.0.2.1", true);
        check("*.example", "a.b.example", "192.0.2.1", true);
        check("*.example", "example", "192.0.2.1", false);
        check("*.example", ".example", "192.0.2.1", false);
        check("*.example", "badexample", "192.0.2.1", false);
        check("192.0.2.0/24", "any.example", "192.0.2.1", true);
        check("192.0.2.0/24", "any.example", "198.51.100.1", false);
        check("192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", true);
        check("2001:db8::/32,a.example", "b.example", "2001:db8::1", true);
        check("2001:db8::/32,a.example", "a.example", "192.0.2.1", true);
        check("a.example", "192.0.2.1", "192.0.2.1", false);
    }

    #[test]
    fn names_that_are_not_allowed_are_not_looked_up() {
        let hosts = |entry: &str| UrlHosts::read(&[entry.to_owned()]).unwrap();
        assert!(!hosts("*.example").may_look_up("other.test"));
        assert!(hosts("192.0.2.0/24").may_look_up("other.test") && UrlHosts::default().may_look_up("other.test"));
    }

    #[test]
    fn other_entries_are_refused() {
        for text in
            ["", "*", "*.", "a..b", "a b", "https://a", "a:443", "a/b", "a.*.b", "*a.b", "10.0.0", "10.0.0.0/33", "1"]
        {
            assert_eq!(UrlHosts::read(&[text.to_owned()]), Err(text.to_owned()));
        }
    }
}

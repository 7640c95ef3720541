//! Binds: the sockets that listeners share.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;

use super::backend::Transport;
use super::host::parents;
use super::listener::Listener;

/// The number of listeners up to which a bind tries one after the other, which is faster than a search.
const TRIED_MAX: usize = 8;

/// The protocol of a bind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BindProtocol {
    /// Plain HTTP/1.1, and HTTP/2 by prior knowledge.
    Http,
    /// TLS. The listener that the server name selects decides: HTTP/2 or HTTP/1.1 by ALPN, or bytes that are passed on.
    Https,
    /// Any protocol: connections are passed on unread, by the [`StreamRoute`](super::StreamRoute) of the bind.
    Tcp,
    /// Datagrams, which are passed on unread by the same. Equal numbers of TCP and UDP are two ports.
    Udp,
}

/// The identity of a bind: its socket. Port 0 asks for a free port, chosen once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct BindKey {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The protocol.
    pub protocol: BindProtocol,
}

impl BindKey {
    /// The transport protocol of its port.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self.protocol {
            BindProtocol::Http | BindProtocol::Https | BindProtocol::Tcp => Transport::Tcp,
            BindProtocol::Udp => Transport::Udp,
        }
    }
}

/// One socket and the listeners that share it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Bind {
    /// Its identity.
    pub key: BindKey,
    /// Its listeners in the order of [`HostPattern::precedence`](super::HostPattern::precedence): the most specific
    /// host first.
    pub listeners: Box<[Listener]>,
}

impl Bind {
    /// The listener for a host in lower case: the most specific one. Finding it takes time that grows with the labels
    /// of the host and the logarithm of the number of listeners.
    #[must_use]
    pub fn listener(&self, host: &str) -> Option<&Listener> {
        if self.listeners.len() <= TRIED_MAX {
            return self.listeners.iter().find(|listener| listener.host.matches(host));
        }
        let wildcards = parents(host).map(|suffix| (1, Reverse(suffix.len()), suffix));
        let places = [(0, Reverse(0), host)].into_iter().chain(wildcards);
        let mut named = places.flat_map(|precedence| {
            self.from(precedence).iter().take_while(move |listener| listener.host.precedence() == precedence)
        });
        let named = named.find(|listener| listener.host.matches(host));
        named.or_else(|| self.from((2, Reverse(0), "")).iter().find(|listener| listener.host.matches(host)))
    }

    /// The listeners from a place in the order on.
    fn from(&self, precedence: (u8, Reverse<usize>, &str)) -> &[Listener] {
        let first = self.listeners.partition_point(|listener| listener.host.precedence() < precedence);
        self.listeners.get(first..).unwrap_or_default()
    }
}

/// All binds, in the order in which they are opened. A bind is found by its key with a binary search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Binds(Arc<Table>);

#[derive(PartialEq, Eq, Debug, Default)]
struct Table {
    binds: Box<[Bind]>,
    /// The places of the binds, in the order of their keys.
    by_key: Box<[usize]>,
}

impl Binds {
    /// The bind with this key.
    #[must_use]
    pub fn get(&self, key: &BindKey) -> Option<&Bind> {
        let Table { binds, by_key } = &*self.0;
        let index = by_key.binary_search_by_key(&Some(key), |index| binds.get(*index).map(|bind| &bind.key)).ok()?;
        by_key.get(index).and_then(|index| binds.get(*index))
    }
}

impl Deref for Binds {
    type Target = [Bind];

    fn deref(&self) -> &[Bind] {
        &self.0.binds
    }
}

impl FromIterator<Bind> for Binds {
    fn from_iter<I: IntoIterator<Item = Bind>>(binds: I) -> Self {
        let binds: Box<[Bind]> = binds.into_iter().collect();
        let mut by_key: Box<[usize]> = (0..binds.len()).collect();
        by_key.sort_by_key(|index| binds.get(*index).map(|bind| bind.key));
        Self(Arc::new(Table { binds, by_key }))
    }
}

impl<const N: usize> From<[Bind; N]> for Binds {
    fn from(binds: [Bind; N]) -> Self {
        binds.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HostPattern, ListenerName, WildcardDepth};
    use super::*;

    fn key(port: u16) -> BindKey {
        BindKey { address: ([127, 0, 0, 1], port).into(), protocol: BindProtocol::Http }
    }

    /// Names of one to three labels, each of few letters.
    fn names() -> impl Iterator<Item = String> + Clone {
        let labels = ["a", "b", "ab"];
        let two = labels.into_iter().flat_map(move |first| labels.map(|second| format!("{first}.{second}")));
        let three = two.clone().flat_map(move |rest| labels.map(|first| format!("{first}.{rest}")));
        labels.map(str::to_owned).into_iter().chain(two).chain(three)
    }

    #[test]
    fn a_search_finds_the_listener_that_trying_all_finds() {
        let every_other = names().enumerate().filter(|(number, _)| number % 2 == 0);
        let exact = every_other.map(|(_, name)| HostPattern::Exact(name.into()));
        let wildcard = |depth| names().step_by(3).map(move |suffix| HostPattern::Wildcard(suffix.into(), depth));
        let label = [HostPattern::FirstLabel("b".into())];
        let patterns = exact.chain(wildcard(WildcardDepth::Any)).chain(wildcard(WildcardDepth::One)).chain(label);
        let listener = |(number, host): (usize, HostPattern)| Listener {
            name: ListenerName(format!("l{number}").into()),
            host,
            ..Listener::for_every_host("")
        };
        for has_any in [false, true] {
            let any = has_any.then_some(HostPattern::Any);
            let mut listeners: Vec<Listener> = patterns.clone().chain(any).enumerate().map(listener).collect();
            listeners.sort_by(|a, b| a.host.precedence().cmp(&b.host.precedence()));
            let bind = Bind { key: key(80), listeners: listeners.into() };
            assert!(bind.listeners.len() > TRIED_MAX);
            for name in names().chain(["".to_owned(), "b.a.a.a.b".to_owned(), ".a".to_owned(), "x.".to_owned()]) {
                let want = bind.listeners.iter().find(|listener| listener.host.matches(&name));
                assert_eq!(bind.listener(&name), want, "{name:?}");
            }
        }
    }

    #[test]
    fn a_bind_is_found_by_its_key_whatever_the_order() {
        let ports = [8443, 80, 9000, 443];
        let binds: Binds = ports.map(|port| Bind { key: key(port), listeners: Box::default() }).into();
        assert!(binds.iter().map(|bind| bind.key).eq(ports.map(key)));
        for port in ports {
            assert_eq!(binds.get(&key(port)).map(|bind| bind.key), Some(key(port)));
        }
        assert_eq!(binds.get(&key(81)), None);
        assert_eq!(Binds::default().get(&key(80)), None);
    }
}

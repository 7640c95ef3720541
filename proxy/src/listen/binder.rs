//! The open binds over all threads: the published state of the process's sockets, and the one place where a bind with
//! port 0 gets its port.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::Socket;
use tidegate_config::model::{Bind, BindKey, BindProtocol};
use tokio::sync::watch;

use crate::datagram::{self, Flows};
use crate::listen::sockets;
use crate::observe::connection_metrics::ConnectionMetrics;
use crate::upstream::own_addresses::Listening;

/// The actual state of the snapshot's binds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bound {
    binds: BTreeMap<BindKey, BoundBind>,
}

/// The actual state of one bind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BoundBind {
    address: Option<SocketAddr>,
    open: BTreeSet<usize>,
    failed: BTreeMap<usize, Arc<str>>,
}

impl Bound {
    /// Every bind that a thread has opened or tried to open.
    pub fn iter(&self) -> impl Iterator<Item = (&BindKey, &BoundBind)> {
        self.binds.iter()
    }

    /// One bind.
    #[must_use]
    pub fn get(&self, key: &BindKey) -> Option<&BoundBind> {
        self.binds.get(key)
    }

    /// Returns `true` if there are binds and none of them is open, so that no client can be served.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        !self.binds.is_empty() && self.binds.values().all(|bind| bind.open.is_empty())
    }
}

impl BoundBind {
    /// The address with its actual port; `None` while no thread listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The number of threads that listen.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.open.len()
    }

    /// The last error of a thread that could not open it; the thread tries again.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.failed.values().next().map(|error| &**error)
    }
}

impl BoundBind {
    fn opened(&mut self, thread: usize, address: SocketAddr) {
        self.address = Some(address);
        self.open.insert(thread);
        self.failed.remove(&thread);
    }
}

fn probe(key: BindKey) -> io::Result<()> {
    match key.protocol {
        BindProtocol::Http | BindProtocol::Https | BindProtocol::Tcp => sockets::probe(key.address),
        BindProtocol::Udp => datagram::probe(key.address),
    }
}

fn open(protocol: BindProtocol, address: SocketAddr) -> io::Result<Socket> {
    match protocol {
        BindProtocol::Http | BindProtocol::Https | BindProtocol::Tcp => sockets::socket(address).map(Socket::from),
        BindProtocol::Udp => datagram::open(address),
    }
}

fn address(socket: &Socket) -> Result<SocketAddr, String> {
    let address = socket.local_addr().map_err(|error| error.to_string())?;
    address.as_socket().ok_or_else(|| "the system reports no address of the socket".to_owned())
}

/// Opens and closes sockets for the threads and keeps [`Bound`] up to date.
#[derive(Debug)]
pub(crate) struct Binder {
    bound: watch::Sender<Bound>,
    /// The addresses on which the process listens, for TCP and for UDP.
    listening: [Arc<Listening>; 2],
    metrics: Arc<ConnectionMetrics>,
    /// The flows of datagrams on all of its sockets.
    pub(super) flows: Arc<Flows>,
}

impl Binder {
    /// A binder without open sockets.
    pub(crate) fn new(listening: [Arc<Listening>; 2], metrics: Arc<ConnectionMetrics>) -> Self {
        Self { bound: watch::Sender::default(), listening, metrics, flows: Arc::default() }
    }

    /// The state, and notifications of its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Bound> {
        self.bound.subscribe()
    }

    /// Opens a thread's own socket of a bind. With port 0, all threads use the first thread's port; otherwise the first
    /// thread checks that the port is free.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn open(&self, thread: usize, key: BindKey) -> io::Result<Socket> {
        let mut opened = Err(io::ErrorKind::Other.into());
        // This runs under the lock of the channel, so only one thread chooses a port.
        self.bound.send_modify(|bound| {
            let bind = bound.binds.entry(key).or_default();
            opened = match bind.address {
                Some(shared) => open(key.protocol, shared),
                None => probe(key).and_then(|()| open(key.protocol, key.address)),
            };
            match opened.as_ref().map_err(ToString::to_string).and_then(address) {
                Ok(address) => {
                    bind.opened(thread, address);
                    self.listening(key.protocol).add(address);
                }
                Err(error) => {
                    bind.failed.insert(thread, error.into());
                    self.metrics.bind_failures.inc();
                }
            }
            self.metrics.listening(&key, Some(bind.open.len()));
        });
        opened
    }

    /// A thread continues to use the socket of a bind that it was draining.
    pub(crate) fn reopen(&self, thread: usize, key: &BindKey, address: SocketAddr) {
        self.bound.send_modify(|bound| {
            let bind = bound.binds.entry(*key).or_default();
            bind.opened(thread, address);
            self.listening(key.protocol).add(address);
            self.metrics.listening(key, Some(bind.open.len()));
        });
    }

    /// The addresses on which the process listens, for TCP or UDP.
    const fn listening(&self, protocol: BindProtocol) -> &Arc<Listening> {
        let [tcp, udp] = &self.listening;
        if matches!(protocol, BindProtocol::Udp) { udp } else { tcp }
    }

    /// A thread has closed its socket of a bind, or has given up opening it.
    pub(crate) fn close(&self, thread: usize, key: &BindKey) {
        self.bound.send_modify(|bound| self.leave(bound, thread, key));
    }

    /// A thread has ended with all its sockets.
    pub(crate) fn close_all(&self, thread: usize) {
        self.bound.send_modify(|bound| self.leave_all(bound, thread));
    }

    /// A thread has failed with all its sockets, and cannot serve these binds for now.
    pub(crate) fn fail_all(&self, thread: usize, binds: &[Bind], why: &str) {
        let why: Arc<str> = format!("a traffic thread failed: {why}").into();
        self.bound.send_modify(|bound| {
            self.leave_all(bound, thread);
            for Bind { key, .. } in binds {
                let bind = bound.binds.entry(*key).or_default();
                bind.failed.insert(thread, Arc::clone(&why));
                self.metrics.listening(key, Some(bind.open.len()));
            }
        });
    }

    fn leave_all(&self, bound: &mut Bound, thread: usize) {
        for key in bound.binds.keys().copied().collect::<Vec<_>>() {
            self.leave(bound, thread, &key);
        }
    }

    fn leave(&self, bound: &mut Bound, thread: usize, key: &BindKey) {
        let Some(bind) = bound.binds.get_mut(key) else { return };
        bind.open.remove(&thread);
        bind.failed.remove(&thread);
        if bind.open.is_empty()
            && let Some(address) = bind.address.take()
        {
            self.listening(key.protocol).remove(address);
        }
        if bind.open.is_empty() && bind.failed.is_empty() {
            bound.binds.remove(key);
            self.metrics.listening(key, None);
        } else {
            self.metrics.listening(key, Some(bind.open.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use tidegate_config::model::BindProtocol;

    use super::*;

    fn binder() -> (Binder, watch::Receiver<Bound>) {
        let binder = Binder::new(<[_; 2]>::default(), Arc::new(ConnectionMetrics::register(&Registry::new()).unwrap()));
        let bound = binder.subscribe();
        (binder, bound)
    }

    const KEY: BindKey = BindKey {
        address: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0),
        protocol: BindProtocol::Http,
    };

    #[test]
    fn a_port_is_kept_while_any_thread_listens_on_it() {
        let (binder, bound) = binder();
        let first = binder.open(0, KEY).unwrap();
        let address = first.local_addr().unwrap();
        let second = binder.open(1, KEY).unwrap();
        assert_eq!(second.local_addr().unwrap().as_socket(), address.as_socket());
        drop(first);
        binder.close(0, &KEY);
        assert_eq!(bound.borrow().get(&KEY).unwrap().threads(), 1);
        assert_eq!(binder.open(0, KEY).unwrap().local_addr().unwrap().as_socket(), address.as_socket());
        binder.close_all(0);
        binder.close_all(1);
        assert!(bound.borrow().get(&KEY).is_none() && !bound.borrow().is_lost());
    }

    #[test]
    fn a_thread_that_fails_shows_on_every_bind_until_it_is_back() {
        let (binder, bound) = binder();
        let binds = [Bind { key: KEY, listeners: Box::default() }];
        let _socket = binder.open(0, KEY).unwrap();
        binder.fail_all(0, &binds, "no luck");
        assert!(bound.borrow().is_lost());
        assert_eq!(bound.borrow().get(&KEY).unwrap().error(), Some("a traffic thread failed: no luck"));
        let _socket = binder.open(0, KEY).unwrap();
        assert!(!bound.borrow().is_lost() && bound.borrow().get(&KEY).unwrap().error().is_none());
    }
}

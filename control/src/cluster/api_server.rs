//! The known sockets of the API server, to which connections are made. No object may lead there.
//!
//! The socket of a server with an IP address is known at once. That of a server with a DNS name is learned from each
//! look-up for a connection: before the connection is made, and so before any object is read.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tokio::sync::watch;
use tower::Service;

/// The maximum number of remembered sockets. A look-up may give different addresses each time.
const SOCKETS_MAX: usize = 256;

/// The sockets of the API server. Clones share them.
///
/// A socket stays known for the lifetime of the process, because connections to it may still be open, and because a
/// look-up may return only a few of several addresses.
#[derive(Clone, Debug, Default)]
pub struct ApiServer {
    /// All known sockets.
    known: watch::Sender<Arc<BTreeSet<SocketAddr>>>,
    /// The sockets that this process has learned itself.
    own: watch::Sender<Arc<BTreeSet<SocketAddr>>>,
}

impl ApiServer {
    /// A server at these sockets.
    #[must_use]
    pub fn at(sockets: impl IntoIterator<Item = SocketAddr>) -> Self {
        let api_server = Self::default();
        api_server.learn(sockets);
        api_server
    }

    /// Adds sockets. Beyond the maximum, older ones are removed.
    pub fn learn(&self, sockets: impl IntoIterator<Item = SocketAddr>) {
        let sockets: BTreeSet<SocketAddr> = sockets.into_iter().collect();
        add(&self.known, sockets.iter().copied());
        add(&self.own, sockets);
    }

    /// Adds sockets from before a restart, which stay known until the process ends; those that it does not learn again
    /// are not remembered over the next restart.
    pub(crate) fn recall(&self, sockets: impl IntoIterator<Item = SocketAddr>) {
        add(&self.known, sockets);
    }

    /// The known sockets.
    #[must_use]
    pub fn sockets(&self) -> Arc<BTreeSet<SocketAddr>> {
        Arc::clone(&self.known.borrow())
    }

    pub(crate) fn followed(&self) -> watch::Receiver<Arc<BTreeSet<SocketAddr>>> {
        self.known.subscribe()
    }

    /// The sockets to remember over a restart.
    pub(crate) fn learned(&self) -> watch::Receiver<Arc<BTreeSet<SocketAddr>>> {
        self.own.subscribe()
    }
}

fn add(to: &watch::Sender<Arc<BTreeSet<SocketAddr>>>, sockets: impl IntoIterator<Item = SocketAddr>) {
    let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let added: BTreeSet<SocketAddr> = sockets.into_iter().map(plain).collect();
    to.send_if_modified(|known| {
        if added.is_subset(known) {
            return false;
        }
        let all: BTreeSet<SocketAddr> = known.union(&added).copied().collect();
        *known = Arc::new(if all.len() > SOCKETS_MAX { added } else { all });
        true
    });
}

/// Resolves the server's name through the system for each new connection, and records the addresses.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub(crate) api_server: ApiServer,
    pub(crate) port: u16,
}

impl Service<Name> for Lookup {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { api_server, port } = self.clone();
        let found = GaiResolver::new().call(name).map_ok(move |found| {
            let found: Vec<SocketAddr> = found.collect();
            api_server.learn(found.iter().map(|at| SocketAddr::new(at.ip(), port)));
            found.into_iter()
        });
        found.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(api_server: &ApiServer, want: &[&str]) {
        let got: Vec<String> = api_server.sockets().iter().map(ToString::to_string).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn earlier_addresses_stay_known() {
        let learn = |api_server: &ApiServer, at: &[&str]| api_server.learn(at.iter().map(|at| at.parse().unwrap()));
        let api_server = ApiServer::at(["[::ffff:192.0.2.1]:6443".parse().unwrap()]);
        let mut followed = api_server.followed();
        check(&api_server, &["192.0.2.1:6443"]);
        learn(&api_server, &["192.0.2.1:6443"]);
        learn(&api_server, &[]);
        assert!(!followed.has_changed().unwrap(), "that is no news");
        learn(&api_server, &["192.0.2.2:6443", "[2001:db8::1]:6443"]);
        check(&api_server, &["192.0.2.1:6443", "192.0.2.2:6443", "[2001:db8::1]:6443"]);
        assert_eq!(*followed.borrow_and_update(), api_server.sockets());
    }

    #[test]
    fn addresses_from_before_a_restart_are_known_but_not_learned() {
        let (old, new) = (SocketAddr::from(([192, 0, 2, 1], 6443)), SocketAddr::from(([192, 0, 2, 2], 6443)));
        let api_server = ApiServer::default();
        api_server.recall([old]);
        assert!(api_server.learned().borrow().is_empty());
        api_server.learn([new]);
        check(&api_server, &["192.0.2.1:6443", "192.0.2.2:6443"]);
        assert_eq!(**api_server.learned().borrow(), BTreeSet::from([new]));
        // After a connection to it in this process, it counts as learned.
        api_server.learn([old]);
        assert_eq!(**api_server.learned().borrow(), BTreeSet::from([old, new]));
    }

    #[test]
    fn beyond_the_limit_the_latest_addresses_are_kept() {
        let at = |number: usize| SocketAddr::from(([192, 0, (number / 250) as u8, (number % 250) as u8], 443));
        let api_server = ApiServer::at((0..SOCKETS_MAX).map(at));
        assert_eq!(api_server.sockets().len(), SOCKETS_MAX);
        api_server.learn([at(SOCKETS_MAX), at(0)]);
        check(&api_server, &["192.0.0.0:443", &at(SOCKETS_MAX).to_string()]);
    }
}

//! Where the API server is: the sockets that connections to it are made to, as they are learned. No object may lead there.
//!
//! A server that is named by its address is known at once. One that is named by a DNS name is where the looked-up name led to for a
//! connection: that is known before the connection is made, and so before anything is heard of any object.

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

/// So many are remembered. A name may lead elsewhere each time that it is looked up.
const SOCKETS_MAX: usize = 256;

/// The sockets of the API server. Clones are one and the same.
///
/// Where it was remains known for as long as the process lives, because connections may still be open to it, and because a name
/// may lead to a few of several addresses each time.
#[derive(Clone, Debug, Default)]
pub struct ApiServer {
    /// All of them.
    known: watch::Sender<Arc<BTreeSet<SocketAddr>>>,
    /// Those that this process has learned by itself.
    own: watch::Sender<Arc<BTreeSet<SocketAddr>>>,
}

impl ApiServer {
    /// One that is at these sockets.
    #[must_use]
    pub fn at(sockets: impl IntoIterator<Item = SocketAddr>) -> Self {
        let api_server = Self::default();
        api_server.learn(sockets);
        api_server
    }

    /// It is at these sockets too. Where that would be too many, those of before are forgotten.
    pub fn learn(&self, sockets: impl IntoIterator<Item = SocketAddr>) {
        let sockets: BTreeSet<SocketAddr> = sockets.into_iter().collect();
        add(&self.known, sockets.iter().copied());
        add(&self.own, sockets);
    }

    /// It was at these sockets before a restart, which is known until the process ends: those that it does not learn by itself
    /// meanwhile are not remembered any longer.
    pub(crate) fn recall(&self, sockets: impl IntoIterator<Item = SocketAddr>) {
        add(&self.known, sockets);
    }

    /// The sockets as they are known now.
    #[must_use]
    pub fn sockets(&self) -> Arc<BTreeSet<SocketAddr>> {
        Arc::clone(&self.known.borrow())
    }

    pub(crate) fn followed(&self) -> watch::Receiver<Arc<BTreeSet<SocketAddr>>> {
        self.known.subscribe()
    }

    /// The sockets to be remembered over a restart.
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

/// Looks the server's name up as the system does, for each new connection, and remembers where it led to.
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
    fn where_it_was_remains_known() {
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
    fn where_it_was_before_a_restart_is_known_and_not_learned() {
        let (old, new) = (SocketAddr::from(([192, 0, 2, 1], 6443)), SocketAddr::from(([192, 0, 2, 2], 6443)));
        let api_server = ApiServer::default();
        api_server.recall([old]);
        assert!(api_server.learned().borrow().is_empty());
        api_server.learn([new]);
        check(&api_server, &["192.0.2.1:6443", "192.0.2.2:6443"]);
        assert_eq!(**api_server.learned().borrow(), BTreeSet::from([new]));
        // Once a connection has led to it in this life, it is not the past any more.
        api_server.learn([old]);
        assert_eq!(**api_server.learned().borrow(), BTreeSet::from([old, new]));
    }

    #[test]
    fn of_too_many_the_latest_are_known() {
        let at = |number: usize| SocketAddr::from(([192, 0, (number / 250) as u8, (number % 250) as u8], 443));
        let api_server = ApiServer::at((0..SOCKETS_MAX).map(at));
        assert_eq!(api_server.sockets().len(), SOCKETS_MAX);
        api_server.learn([at(SOCKETS_MAX), at(0)]);
        check(&api_server, &["192.0.0.0:443", &at(SOCKETS_MAX).to_string()]);
    }
}

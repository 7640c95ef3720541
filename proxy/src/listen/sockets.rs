//! Reconciles the sockets of one thread with the snapshot: opens new ones, closes removed ones and leaves the others
//! unchanged. A bind that cannot be opened is tried again and does not affect the others. The sockets are audited
//! periodically.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tidegate_config::model::{BindKey, BindProtocol, Generation};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::budget::ListeningSocket;
use crate::clock;
use crate::datagram::{self, ClientSocket};
use crate::driver::Traffic;
use crate::listen::accept::accept;
use crate::listen::binder::Binder;

/// The maximum number of connections that the kernel completes before they are accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// The idle time after which the kernel sends TCP keepalive probes, and the interval of the probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(15));

/// The shortest and longest pause before a bind is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Opens a listening socket whose address other threads can share (`SO_REUSEPORT`).
///
/// Accepted sockets inherit the options set here. An unspecified IPv6 address accepts IPv4 as well, for operators who
/// configure one address for both.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn socket(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = unbound(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Checks whether another process listens on an address. A socket that shares its port would not notice: the kernel
/// would distribute connections over both processes.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if one does, and others of the operating system.
pub(crate) fn probe(address: SocketAddr) -> io::Result<()> {
    unbound(address)?.bind(&address.into())
}

/// Returns `true` if the kernel accepts connections for a socket, as far as that can be checked.
fn listening(socket: &TcpListener) -> bool {
    #[cfg(target_os = "linux")]
    let listening = SockRef::from(socket).is_listener().unwrap_or(false);
    #[cfg(not(target_os = "linux"))]
    let listening = SockRef::from(socket).local_addr().is_ok();
    listening
}

/// A socket whose address may have connections in TIME_WAIT.
fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let SocketAddr::V6(address) = address {
        socket.set_only_v6(*address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// The socket of a bind, which the bind's task owns.
enum BindSocket {
    Connections(Weak<TcpListener>),
    Datagrams(Weak<ClientSocket>),
}

/// An open bind of this thread.
struct OpenBind {
    socket: BindSocket,
    /// Its local address.
    address: SocketAddr,
    ending: watch::Sender<Option<Instant>>,
    task: AbortHandle,
    _counted: ListeningSocket,
}

impl OpenBind {
    /// Returns `true` if the kernel still has the socket at its address.
    fn listens(&self) -> bool {
        let there = |socket: &TcpListener| socket.local_addr().is_ok_and(|address| address == self.address);
        match &self.socket {
            BindSocket::Connections(socket) => {
                socket.upgrade().is_some_and(|socket| listening(&socket) && there(&socket))
            }
            BindSocket::Datagrams(socket) => socket.upgrade().is_some_and(|socket| socket.is_there()),
        }
    }
}

/// The sockets of one thread.
struct Sockets<'a> {
    thread: usize,
    traffic: &'a Arc<Traffic>,
    binder: &'a Binder,
    open: BTreeMap<BindKey, OpenBind>,
    /// Removed binds whose connections or flows have not ended.
    leaving: Vec<(BindKey, OpenBind)>,
    tasks: JoinSet<usize>,
    /// Binds that could not be opened, the number of consecutive failures, and the time of the next attempt.
    failed: BTreeSet<BindKey>,
    failures: u32,
    retry_at: Instant,
}

/// Listens until `stop` has a deadline, lets connections finish until then, and returns the number of aborted ones.
pub(crate) async fn listen(
    thread: usize,
    traffic: &Arc<Traffic>,
    binder: &Binder,
    mut changes: watch::Receiver<Generation>,
    mut stop: watch::Receiver<Option<Instant>>,
) -> usize {
    let mut sockets = Sockets {
        thread,
        traffic,
        binder,
        open: BTreeMap::new(),
        leaving: Vec::new(),
        tasks: JoinSet::new(),
        failed: BTreeSet::new(),
        failures: 0,
        retry_at: Instant::from_std(clock::now()),
    };
    let every = traffic.options.audit;
    let mut audits = interval_at(Instant::from_std(clock::now()) + every, every);
    audits.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut publishing = true;
    loop {
        changes.borrow_and_update();
        sockets.reconcile();
        tokio::select! {
            changed = changes.changed(), if publishing => publishing = changed.is_ok(),
            () = sleep_until(sockets.retry_at), if !sockets.failed.is_empty() => {}
            Some(ended) = sockets.tasks.join_next() => sockets.ended(ended.is_err()),
            // A pending change is not drift.
            _ = audits.tick() => if !changes.has_changed().unwrap_or(false) {
                sockets.audit();
            },
            _ = stop.wait_for(Option::is_some) => break,
        }
    }
    // If the sender of the deadline is gone, the deadline is now.
    let until = stop.borrow().unwrap_or_else(|| Instant::from_std(clock::now()));
    sockets.close(until).await
}

impl Sockets<'_> {
    fn reconcile(&mut self) {
        let now = Instant::from_std(clock::now());
        let snapshot = self.traffic.published.pin();
        let wanted = |key: &BindKey| snapshot.bind(key).is_some();
        let gone = self.open.extract_if(.., |key, open| !wanted(key) || open.task.is_finished());
        for (key, open) in gone.collect::<Vec<_>>() {
            self.leave(&key, open);
        }
        for key in self.failed.extract_if(.., |key| !wanted(key)) {
            self.binder.close(self.thread, &key);
        }
        self.leaving.retain(|(_, open)| !open.ending.is_closed());
        // Frequent publications do not shorten the retry interval.
        if now >= self.retry_at {
            self.failed.clear();
        }
        let waiting = self.failed.len();
        for bind in snapshot.binds() {
            if !self.open.contains_key(&bind.key) && !self.failed.contains(&bind.key) {
                self.start(bind.key);
            }
        }
        if self.failed.is_empty() {
            self.failures = 0;
        } else if self.failed.len() > waiting {
            self.retry_at = now + (RETRY.0 * 2u32.saturating_pow(self.failures.min(16))).min(RETRY.1);
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Counts and logs differences from the snapshot that no change explains, and closes sockets that are not wanted or
    /// no longer listen. The following reconciliation opens missing ones.
    fn audit(&mut self) {
        let snapshot = self.traffic.published.pin();
        let known = |key: &BindKey| self.open.contains_key(key) || self.failed.contains(key);
        let missing = snapshot.binds().iter().map(|bind| bind.key).filter(|key| !known(key));
        let wrong = self.open.iter().filter(|(key, open)| snapshot.bind(key).is_none() || !open.listens());
        let drifted: Vec<BindKey> = missing.chain(wrong.map(|(key, _)| *key)).collect();
        for key in drifted {
            self.traffic.metrics.bind_drift.inc();
            tracing::error!(thread = self.thread, bind = %key.address, "a socket differs from the snapshot; it is closed or reopened");
            if let Some(open) = self.open.remove(&key) {
                self.leave(&key, open);
            }
        }
    }

    /// Stops listening and lets the connections of a bind finish.
    fn leave(&mut self, key: &BindKey, open: OpenBind) {
        let until = Instant::from_std(clock::now()) + self.traffic.options.drain.removed_bind_grace;
        open.ending.send_replace(Some(until));
        self.leaving.push((*key, open));
        self.binder.close(self.thread, key);
        tracing::info!(thread = self.thread, bind = %key.address, "stopped listening");
    }

    fn start(&mut self, key: BindKey) {
        if self.resume(key) {
            return;
        }
        match self.opened(key) {
            Ok(open) => {
                self.open.insert(key, open);
                tracing::debug!(thread = self.thread, bind = %key.address, "listening");
            }
            Err(error) => {
                tracing::warn!(thread = self.thread, bind = %key.address, %error, "cannot listen; retrying");
                self.failed.insert(key);
            }
        }
    }

    fn opened(&mut self, key: BindKey) -> io::Result<OpenBind> {
        let socket = self.binder.open(self.thread, key)?;
        let ((ending, end), traffic) = (watch::channel(None), Arc::clone(self.traffic));
        let (socket, address, task) = match key.protocol {
            BindProtocol::Http | BindProtocol::Https | BindProtocol::Tcp => {
                let listener = Arc::new(TcpListener::from_std(socket.into())?);
                let bind_socket = BindSocket::Connections(Arc::downgrade(&listener));
                (bind_socket, listener.local_addr()?, self.tasks.spawn(accept(listener, key, traffic, end)))
            }
            BindProtocol::Udp => {
                let socket = Arc::new(ClientSocket::new(socket)?);
                let bind_socket = BindSocket::Datagrams(Arc::downgrade(&socket));
                let flows = Arc::clone(&self.binder.flows);
                (bind_socket, socket.address(), self.tasks.spawn(datagram::serve(socket, key, traffic, flows, end)))
            }
        };
        Ok(OpenBind { socket, address, ending, task, _counted: self.traffic.shared.budget.listen() })
    }

    /// Continues with the socket of a UDP bind that was draining and still has flows. Returns `true` if there is one. A
    /// second socket would get a part of their datagrams, and the first one a part of the new clients'.
    fn resume(&mut self, key: BindKey) -> bool {
        let is_it = |(other, open): &mut (BindKey, OpenBind)| {
            *other == key && key.protocol == BindProtocol::Udp && !open.task.is_finished()
        };
        let Some((_, open)) = self.leaving.extract_if(.., is_it).next() else { return false };
        open.ending.send_replace(None);
        self.binder.reopen(self.thread, &key, open.address);
        self.open.insert(key, open);
        true
    }

    /// A bind has drained, or its task has panicked; the next reconciliation opens it again if it is wanted.
    fn ended(&self, panicked: bool) {
        if panicked {
            tracing::error!(thread = self.thread, "the task of a bind panicked");
        }
    }

    async fn close(mut self, until: Instant) -> usize {
        for (key, open) in std::mem::take(&mut self.open) {
            open.ending.send_replace(Some(until));
            self.binder.close(self.thread, &key);
            self.leaving.push((key, open));
        }
        for (_, OpenBind { ending, .. }) in &self.leaving {
            ending.send_modify(|end| *end = Some(end.map_or(until, |end| end.min(until))));
        }
        let mut cut = 0;
        while let Some(ended) = self.tasks.join_next().await {
            cut += ended.unwrap_or_default();
        }
        self.binder.close_all(self.thread);
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_accepted_socket_inherits_the_options_of_the_listening_one() {
        let listener = TcpListener::from_std(socket(([127, 0, 0, 1], 0).into()).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let _client = tokio::net::TcpStream::connect(address).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(socket2::SockRef::from(&stream).keepalive().unwrap());
        // The socket of another thread can share the port; that of another process cannot.
        socket(address).unwrap();
        std::net::TcpListener::bind(address).unwrap_err();
    }
}

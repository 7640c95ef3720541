//! Keeps the sockets of one thread as the snapshot wants them: opens what is new, closes what has gone and leaves
//! the rest alone. A bind that cannot be opened is tried again; it hurts nobody else. Now and then the sockets are looked at
//! although nothing has happened.

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

use crate::clock;
use crate::datagram::{self, ClientSocket};
use crate::driver::Traffic;
use crate::listen::accept::accept;
use crate::listen::binder::Binder;

/// Connections that the kernel completes before they are accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// Silence after which the kernel asks whether a client is still there, and the pause between its questions.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(15));

/// The shortest and longest pause before a bind is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Opens a listening socket whose address other threads can share (`SO_REUSEPORT`).
///
/// What is set here is inherited by accepted sockets. An unspecified IPv6 address takes IPv4 as well, as an
/// operator who names one address for everything expects.
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

/// Asks whether anybody listens on an address already. A socket that shares its port would not notice: the kernel would
/// spread connections over us and, say, a second process with the same flags.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] when somebody does, and others of the operating system.
pub(crate) fn probe(address: SocketAddr) -> io::Result<()> {
    unbound(address)?.bind(&address.into())
}

/// Whether the kernel takes connections for a socket, where it can be asked.
fn listening(socket: &TcpListener) -> bool {
    #[cfg(target_os = "linux")]
    let listening = SockRef::from(socket).is_listener().unwrap_or(false);
    #[cfg(not(target_os = "linux"))]
    let listening = SockRef::from(socket).local_addr().is_ok();
    listening
}

/// A socket that connections which have just ended do not keep from an address.
fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let SocketAddr::V6(address) = address {
        socket.set_only_v6(*address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// The socket of a bind, which belongs to the bind's task.
enum Watched {
    Connections(Weak<TcpListener>),
    Datagrams(Weak<ClientSocket>),
}

/// An open bind of this thread.
struct Open {
    socket: Watched,
    /// Where it was opened.
    address: SocketAddr,
    ending: watch::Sender<Option<Instant>>,
    task: AbortHandle,
}

impl Open {
    /// Whether the socket still is what it was opened as, as the kernel knows it.
    fn listens(&self) -> bool {
        let there = |socket: &TcpListener| socket.local_addr().is_ok_and(|address| address == self.address);
        match &self.socket {
            Watched::Connections(socket) => socket.upgrade().is_some_and(|socket| listening(&socket) && there(&socket)),
            Watched::Datagrams(socket) => socket.upgrade().is_some_and(|socket| socket.is_there()),
        }
    }
}

/// The sockets of one thread.
struct Sockets<'a> {
    thread: usize,
    traffic: &'a Arc<Traffic>,
    binder: &'a Binder,
    open: BTreeMap<BindKey, Open>,
    /// Binds that have left the snapshot and whose connections or flows have not.
    leaving: Vec<(BindKey, Open)>,
    tasks: JoinSet<usize>,
    /// Binds that could not be opened, how many times in a row that has happened, and when it is time to try again.
    failed: BTreeSet<BindKey>,
    failures: u32,
    retry_at: Instant,
}

/// Listens until `stop` names an end, lets connections finish until then, and returns how many were cut.
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
            // What has been said and not been heard yet is no drift.
            _ = audits.tick() => if !changes.has_changed().unwrap_or(false) {
                sockets.audit();
            },
            _ = stop.wait_for(Option::is_some) => break,
        }
    }
    // A stop that can no longer name an end means now.
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
        // A storm of publications is no reason to try a bad bind more often.
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

    /// Counts and tells what is not as the snapshot wants it although nothing has said so, and closes what is too much or
    /// listens no longer. The reconciliation that follows opens what is missing.
    fn audit(&mut self) {
        let snapshot = self.traffic.published.pin();
        let known = |key: &BindKey| self.open.contains_key(key) || self.failed.contains(key);
        let missing = snapshot.binds().iter().map(|bind| bind.key).filter(|key| !known(key));
        let wrong = self.open.iter().filter(|(key, open)| snapshot.bind(key).is_none() || !open.listens());
        let drifted: Vec<BindKey> = missing.chain(wrong.map(|(key, _)| *key)).collect();
        for key in drifted {
            self.traffic.metrics.bind_drift.inc();
            tracing::error!(thread = self.thread, bind = %key.address, "a socket is not as it should be; it is mended");
            if let Some(open) = self.open.remove(&key) {
                self.leave(&key, open);
            }
        }
    }

    /// Stops listening and lets the connections of a bind finish.
    fn leave(&mut self, key: &BindKey, open: Open) {
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
                tracing::warn!(thread = self.thread, bind = %key.address, %error, "cannot listen; trying again");
                self.failed.insert(key);
            }
        }
    }

    fn opened(&mut self, key: BindKey) -> io::Result<Open> {
        let socket = self.binder.open(self.thread, key)?;
        let ((ending, told), traffic) = (watch::channel(None), Arc::clone(self.traffic));
        let (socket, address, task) = match key.protocol {
            BindProtocol::Http | BindProtocol::Https | BindProtocol::Tcp => {
                let listener = Arc::new(TcpListener::from_std(socket.into())?);
                let watched = Watched::Connections(Arc::downgrade(&listener));
                (watched, listener.local_addr()?, self.tasks.spawn(accept(listener, key, traffic, told)))
            }
            BindProtocol::Udp => {
                let socket = Arc::new(ClientSocket::new(socket)?);
                let watched = Watched::Datagrams(Arc::downgrade(&socket));
                (watched, socket.address(), self.tasks.spawn(datagram::serve(socket, key, traffic, told)))
            }
        };
        Ok(Open { socket, address, ending, task })
    }

    /// Goes on with the socket of a UDP bind that was about to end, whose flows have not ended; whether there is one. A second socket
    /// would get a part of their datagrams, and the first one a part of the new clients'.
    fn resume(&mut self, key: BindKey) -> bool {
        let is_it = |(other, open): &mut (BindKey, Open)| {
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
        for (_, Open { ending, .. }) in &self.leaving {
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
    async fn an_accepted_socket_inherits_what_was_set_on_the_listening_one() {
        let listener = TcpListener::from_std(socket(([127, 0, 0, 1], 0).into()).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let _client = tokio::net::TcpStream::connect(address).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(socket2::SockRef::from(&stream).keepalive().unwrap());
        // Another thread's socket shares the port; a stranger's cannot.
        socket(address).unwrap();
        std::net::TcpListener::bind(address).unwrap_err();
    }
}

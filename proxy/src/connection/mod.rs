//! A connection from its acceptance to its end: the facts about it ([`ConnectionFacts`]), the byte stream that drivers
//! read and write ([`ClientIo`]), and the rules of its beginning and its end.

mod alarm;
pub(crate) mod bind_end;
pub(crate) mod chunks;
pub(crate) mod clients;
pub(crate) mod close;
pub(crate) mod copy;
mod early_tls;
pub(crate) mod head_scan;
mod hello;
pub(crate) mod idle;
mod io;
pub(crate) mod kept_dates;
pub(crate) mod proxy_header;
pub(crate) mod rate;
pub(crate) mod response_deadline;
mod server_config;
mod stall;
pub(crate) mod stream_counts;
pub(crate) mod tls;
pub(crate) mod transport;

pub(crate) use alarm::Alarm;
pub(crate) use close::{MALFORMED, Refusal};
pub(crate) use io::ClientIo;
pub(crate) use proxy_header::HeaderFailure as ProxyHeaderFailure;
pub(crate) use stream_counts::Abuse;
use stream_counts::StreamCounts;
#[cfg(test)]
pub(crate) use transport::Transport;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use arrayvec::ArrayString;
use ipnet::IpNet;
use pingora::protocols::Digest;
use pingora::server::ShutdownWatch;
use tidegate_config::model::{BindKey, Snapshot, TlsListener};
use tokio::sync::Mutex;
use tokio::time::sleep_until;

use crate::connection::clients::ClientPermit;
use crate::connection::idle::Activity;
use crate::connection::kept_dates::KeptDates;

/// The length of the head at the beginning of these bytes, if drivers may get it: all its lines end with CRLF.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn strict_head(bytes: &[u8]) -> Option<usize> {
    head_scan::HeadScan::default().advance(bytes).filter(|head| head.strict).map(|head| head.len)
}

/// The facts about a connection before its first request. They travel in Pingora's `ProxyDigest::user_data` as
/// `Arc<ConnectionFacts>`, so that they can be read for HTTP/1.1 and HTTP/2 alike.
#[derive(Debug)]
pub(crate) struct ConnectionFacts {
    /// The bind it came in over, as in the snapshot.
    pub(crate) bind: BindKey,
    /// The address it came in over.
    pub(crate) local: SocketAddr,
    /// The address of the TCP peer, or the source in a trusted peer's PROXY header.
    pub(crate) peer: SocketAddr,
    /// The port that the client connected to, if the PROXY header or a listener names it.
    pub(crate) named_port: Option<u16>,
    /// Whether its peer is trusted with forwarded headers. A load balancer with the PROXY protocol does not read
    /// requests, so if its header has no address, the forwarded headers are the client's own.
    pub(crate) forwards: bool,
    /// Addresses as text, which every request needs.
    pub(crate) text: AddressText,
    /// The outcome of the TLS handshake; `None` in plain text.
    pub(crate) tls: Option<TlsFacts>,
    /// When it was accepted.
    pub(crate) accepted: Instant,
    /// `true` when its bind drains: the next response is its last.
    pub(crate) ending: ShutdownWatch,
    /// Its place among the connections of its client; `None` for trusted proxies, which act for many.
    pub(crate) client: Option<ClientPermit>,
    /// Whether it is idle.
    pub(crate) activity: Arc<Activity>,
    /// Its streams, for HTTP/2.
    pub(crate) streams: StreamCounts,
    /// Whether it was upgraded to another protocol.
    tunnel: AtomicBool,
    /// The dates of the next final response that Pingora writes over HTTP/1.
    dates: Mutex<Option<KeptDates>>,
}

/// The shutdown signals for the connections of a bind.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown {
    /// `true` when the bind drains: the next response is a connection's last.
    pub(crate) draining: ShutdownWatch,
    /// `true` at the end: idle connections are closed.
    pub(crate) closed: ShutdownWatch,
}

/// After this long without a byte, a connection is no longer new.
const NEW: Duration = Duration::from_secs(1);

impl Shutdown {
    /// Waits until an idle connection must close because its bind closes. A new connection stays open for a while: its
    /// client is about to send the first request.
    pub(crate) fn ends_silence(&self, accepted: Instant) -> impl Future<Output = ()> + Send + 'static {
        let mut closed = self.closed.clone();
        async move {
            drop(closed.wait_for(|closed| *closed).await);
            sleep_until((accepted + NEW).into()).await;
        }
    }
}

impl ConnectionFacts {
    /// The facts about a connection from this peer over a bind.
    pub(crate) fn new(
        bind: BindKey,
        (peer, local): (SocketAddr, SocketAddr),
        text: AddressText,
        ending: ShutdownWatch,
        activity: Arc<Activity>,
        accepted: Instant,
    ) -> Self {
        let (streams, tunnel, dates) = (StreamCounts::default(), AtomicBool::new(false), Mutex::new(None));
        let (named_port, forwards, tls, client) = (None, true, None, None);
        Self {
            bind,
            local,
            peer,
            named_port,
            forwards,
            text,
            tls,
            accepted,
            ending,
            client,
            activity,
            streams,
            tunnel,
            dates,
        }
    }

    /// The connection was upgraded to another protocol, which has no minimum rate.
    pub(crate) fn becomes_tunnel(&self) {
        self.tunnel.store(true, Relaxed);
    }

    /// These dates belong into the next final response that Pingora writes over HTTP/1; see [`kept_dates`].
    pub(crate) fn keep_dates(&self, dates: Option<KeptDates>) {
        // The driver and the stream that it writes to are one task, so nobody else holds it.
        if let Ok(mut kept) = self.dates.try_lock() {
            *kept = dates;
        }
    }

    /// The kept dates, if these bytes to be written are the head of that response.
    fn take_dates(&self, bytes: &[u8]) -> Option<KeptDates> {
        if !kept_dates::is_final_head(bytes) || self.is_tunnel() {
            return None;
        }
        self.dates.try_lock().ok()?.take()
    }

    fn is_tunnel(&self) -> bool {
        self.tunnel.load(Relaxed)
    }

    /// Returns `true` if its bind drains, so that the next response should have `Connection: close`.
    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Returns `true` if its data may be a replay by another party (RFC 8446 section 8): the handshake is not complete.
    pub(crate) fn is_early(&self) -> bool {
        self.tls.as_ref().and_then(|tls| tls.early.as_ref()).is_some_and(|early| early.load(Relaxed))
    }

    /// The peers whose forwarded headers are trusted.
    pub(crate) fn trusted<'a>(&self, snapshot: &'a Snapshot) -> &'a [IpNet] {
        if self.forwards { snapshot.trusted_proxies() } else { &[] }
    }

    /// Returns `true` for a connection of a trusted proxy, which forwards for many clients.
    pub(crate) const fn is_of_proxy(&self) -> bool {
        self.client.is_none()
    }

    /// The facts in Pingora's digest of a connection.
    pub(crate) fn of(digest: &Digest) -> Option<Arc<Self>> {
        digest.proxy_digest.as_ref()?.user_data.as_ref()?.downcast_ref::<Arc<Self>>().cloned()
    }

    /// Facts of a plain connection that stays.
    #[cfg(test)]
    pub(crate) fn sample(peer: SocketAddr) -> Self {
        use tidegate_config::model::BindProtocol;
        let local: SocketAddr = ([127, 0, 0, 1], 80).into();
        let bind = BindKey { address: local, protocol: BindProtocol::Http };
        let (text, ending) = (AddressText::new(peer), tokio::sync::watch::channel(false).1);
        let now = crate::clock::now();
        Self::new(bind, (peer, local), text, ending, Activity::new(now, now), now)
    }
}

/// The addresses of a connection as text.
#[derive(Debug)]
pub(crate) struct AddressText {
    /// The address of the peer, with its port.
    pub(crate) socket: ArrayString<SOCKET_CHARACTERS_MAX>,
    /// The IP address of the peer.
    pub(crate) peer: ArrayString<IP_CHARACTERS_MAX>,
}

/// The maximum length of an IPv6 address, which may end like an IPv4 address.
const IP_CHARACTERS_MAX: usize = 45;

/// The maximum length of such an address in brackets, with a scope and a port.
const SOCKET_CHARACTERS_MAX: usize = IP_CHARACTERS_MAX + "[%4294967295]:".len() + PORT_CHARACTERS_MAX;

/// The maximum length of a port.
const PORT_CHARACTERS_MAX: usize = 5;

impl AddressText {
    /// The texts of these addresses.
    pub(crate) fn new(peer: SocketAddr) -> Self {
        let (mut socket, mut own) = (ArrayString::new(), ArrayString::new());
        // The capacity fits every address and port.
        write!(socket, "{peer}").ok();
        write!(own, "{}", peer.ip()).ok();
        Self { socket, peer: own }
    }
}

/// The outcome of a TLS handshake.
#[derive(Debug)]
pub(crate) struct TlsFacts {
    /// The listener of the server name.
    pub(crate) listener: TlsListener,
    /// The server name from the client, in lower case.
    pub(crate) server_name: Option<Arc<str>>,
    /// The version, such as `TLSv1.3`.
    pub(crate) version: &'static str,
    /// The cipher suite's name.
    pub(crate) cipher: &'static str,
    /// Whether the handshake is still in progress, for a client that may send early data.
    pub(crate) early: Option<Arc<AtomicBool>>,
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV6};

    use super::*;

    #[test]
    fn every_address_fits() {
        let long = SocketAddrV6::new(Ipv6Addr::from([0xff; 16]), u16::MAX, 0, u32::MAX);
        let text = AddressText::new(long.into());
        assert_eq!(&*text.socket, &*long.to_string());
        assert_eq!(&*text.peer, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    }
}

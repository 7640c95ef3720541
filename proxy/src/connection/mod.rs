//! A connection from its acceptance to its end: what is known of it ([`ConnectionFacts`]), the byte stream that
//! drivers read and write ([`Conn`]), and the rules of its beginning and its end.

mod alarm;
pub(crate) mod chunks;
pub(crate) mod clients;
pub(crate) mod close;
mod early_tls;
pub(crate) mod head_scan;
mod hello;
pub(crate) mod idle;
mod io;
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
pub(crate) use io::Conn;
pub(crate) use proxy_header::Failure as ProxyHeaderFailure;
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
use tokio::time::sleep_until;

use crate::connection::clients::ClientPlace;
use crate::connection::idle::Activity;

/// The length of the head that these bytes begin with, where drivers are asked about it at all: its lines all end with CRLF.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn strict_head(bytes: &[u8]) -> Option<usize> {
    head_scan::HeadScan::default().advance(bytes).filter(|head| head.strict).map(|head| head.len)
}

/// What is known of a connection before its first request. It travels in Pingora's `ProxyDigest::user_data`
/// as `Arc<ConnectionFacts>`, so that it can be read on HTTP/1.1 and HTTP/2 alike.
#[derive(Debug)]
pub(crate) struct ConnectionFacts {
    /// The bind it came in over, as the snapshot names it.
    pub(crate) bind: BindKey,
    /// The address it came in over.
    pub(crate) local: SocketAddr,
    /// The address of the TCP peer, or what a trusted one's PROXY header names in its place.
    pub(crate) peer: SocketAddr,
    /// Whether its peer may be believed what it says of clients behind it. A load balancer that speaks the PROXY protocol has read
    /// nothing of a request, so where its header names nobody the forwarded headers are the client's own.
    pub(crate) forwards: bool,
    /// Addresses as text, because every request needs them.
    pub(crate) text: AddressText,
    /// What TLS agreed on; `None` in plain text.
    pub(crate) tls: Option<TlsFacts>,
    /// When it was accepted.
    pub(crate) accepted: Instant,
    /// `true` once the end of its bind is near: the next response is its last.
    pub(crate) ending: ShutdownWatch,
    /// Its place among the connections of its client; `None` for trusted proxies, which speak for many.
    pub(crate) client: Option<ClientPlace>,
    /// Whether it waits for a request.
    pub(crate) activity: Arc<Activity>,
    /// Its streams, where it speaks HTTP/2.
    pub(crate) streams: StreamCounts,
    /// Whether it was upgraded to another protocol.
    tunnel: AtomicBool,
}

/// What the connections of a bind are told of its end.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// `true` once it is near: the next response is a connection's last.
    pub(crate) last: ShutdownWatch,
    /// `true` once it has come: nobody waits for another request.
    pub(crate) over: ShutdownWatch,
}

/// After this long without a byte, a connection is no longer new.
const NEW: Duration = Duration::from_secs(1);

impl Notice {
    /// Waits until a connection on which nothing arrives has to end: the end of its bind has come, and it is no longer new. A client
    /// that has just connected is about to send its first request.
    pub(crate) fn ends_silence(&self, accepted: Instant) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.clone();
        async move {
            drop(over.wait_for(|over| *over).await);
            sleep_until((accepted + NEW).into()).await;
        }
    }
}

impl ConnectionFacts {
    /// Of a connection that came in over a bind, from this peer.
    pub(crate) fn new(
        bind: BindKey,
        (peer, local): (SocketAddr, SocketAddr),
        text: AddressText,
        ending: ShutdownWatch,
        activity: Arc<Activity>,
        accepted: Instant,
    ) -> Self {
        let (streams, tunnel) = (StreamCounts::default(), AtomicBool::new(false));
        let (forwards, tls, client) = (true, None, None);
        Self { bind, local, peer, forwards, text, tls, accepted, ending, client, activity, streams, tunnel }
    }

    /// Notes that it was upgraded to another protocol, for which there is no least rate.
    pub(crate) fn becomes_tunnel(&self) {
        self.tunnel.store(true, Relaxed);
    }

    fn is_tunnel(&self) -> bool {
        self.tunnel.load(Relaxed)
    }

    /// Whether the end of its bind is near, so that the next response should say `Connection: close`.
    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Whether what its client says now may have been said before, to this edge or another, by somebody who has it copied (RFC 8446
    /// section 8): the handshake is not over.
    pub(crate) fn is_early(&self) -> bool {
        self.tls.as_ref().and_then(|tls| tls.early.as_ref()).is_some_and(|early| early.load(Relaxed))
    }

    /// Whose forwarded headers are believed.
    pub(crate) fn trusted<'a>(&self, snapshot: &'a Snapshot) -> &'a [IpNet] {
        if self.forwards { snapshot.trusted_proxies() } else { &[] }
    }

    /// What Pingora carries along with a connection.
    pub(crate) fn of(digest: &Digest) -> Option<Arc<Self>> {
        digest.proxy_digest.as_ref()?.user_data.as_ref()?.downcast_ref::<Arc<Self>>().cloned()
    }

    /// Facts of a plain connection that stays.
    #[cfg(test)]
    pub(crate) fn sample(peer: SocketAddr) -> Self {
        use tidegate_config::model::BindProtocol;
        let local: SocketAddr = ([127, 0, 0, 1], 80).into();
        let bind = BindKey { address: local, protocol: BindProtocol::Http };
        let (text, ending) = (AddressText::new(peer, local.port()), tokio::sync::watch::channel(false).1);
        let now = crate::clock::now();
        Self::new(bind, (peer, local), text, ending, Activity::new(now, now), now)
    }
}

/// Addresses of a connection as text.
#[derive(Debug)]
pub(crate) struct AddressText {
    /// The address of the peer, with its port.
    pub(crate) socket: ArrayString<SOCKET_CHARACTERS_MAX>,
    /// The IP address of the peer.
    pub(crate) peer: ArrayString<IP_CHARACTERS_MAX>,
    /// The port that the client came to.
    pub(crate) port: ArrayString<PORT_CHARACTERS_MAX>,
}

/// Characters of an IPv6 address that ends like an IPv4 address.
const IP_CHARACTERS_MAX: usize = 45;

/// Characters of such an address in brackets, with a scope and a port.
const SOCKET_CHARACTERS_MAX: usize = IP_CHARACTERS_MAX + "[%4294967295]:".len() + PORT_CHARACTERS_MAX;

/// Characters of a port.
const PORT_CHARACTERS_MAX: usize = 5;

impl AddressText {
    /// Of these.
    pub(crate) fn new(peer: SocketAddr, to: u16) -> Self {
        let (mut socket, mut own, mut port) = (ArrayString::new(), ArrayString::new(), ArrayString::new());
        // There is room for whatever an address or a port can be.
        write!(socket, "{peer}").ok();
        write!(own, "{}", peer.ip()).ok();
        write!(port, "{to}").ok();
        Self { socket, peer: own, port }
    }
}

/// What a TLS handshake agreed on.
#[derive(Debug)]
pub(crate) struct TlsFacts {
    /// The listener that it was with.
    pub(crate) listener: TlsListener,
    /// The server name that the client asked for, in lower case.
    pub(crate) server_name: Option<Arc<str>>,
    /// The version, such as `TLSv1.3`.
    pub(crate) version: &'static str,
    /// The cipher suite's name.
    pub(crate) cipher: &'static str,
    /// Whether the handshake is still going on, for a client that may speak before its end.
    pub(crate) early: Option<Arc<AtomicBool>>,
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV6};

    use super::*;

    #[test]
    fn there_is_room_for_every_address() {
        let long = SocketAddrV6::new(Ipv6Addr::from([0xff; 16]), u16::MAX, 0, u32::MAX);
        let text = AddressText::new(long.into(), long.port());
        assert_eq!((&*text.socket, &*text.port), (&*long.to_string(), "65535"));
        assert_eq!(&*text.peer, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    }
}

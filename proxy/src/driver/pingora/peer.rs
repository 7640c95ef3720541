//! Pingora's peer for an HTTP/1.1 endpoint. Addresses are never resolved here.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::upstreams::peer::{HttpPeer, PeerOptions, Scheme};
use prometheus::IntCounter;
use tidegate_config::model::{Endpoint, Target};

use super::endpoint_socket::Link;
use crate::request::forwarding::UpstreamAttempt;
use crate::upstream::connection::ConnectionKey;

/// The idle timeout in Pingora's pool, which keeps none of these connections.
const NOTHING: Duration = Duration::from_millis(1);

/// The requirements of a request on its connection, besides those of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionNeeds<'a> {
    /// The host of the request, for targets without a server name of their own.
    pub(crate) host: &'a str,
    /// The maximum number of idle connections of a thread.
    pub(crate) pool_size: usize,
    /// Whether the request is HEAD.
    pub(crate) to_head: bool,
    /// Counts connections that are closed because a byte would have followed the end of a request.
    pub(crate) overruns: &'a IntCounter,
    /// The maximum pause of the client in the request's body, which does not count against the endpoint.
    pub(crate) pause: Duration,
}

/// The peer for an endpoint of a target, to which no connection is open yet, and the link to it.
pub(super) fn peer(attempt: &UpstreamAttempt<'_>, need: &ConnectionNeeds<'_>) -> (HttpPeer, Arc<Link>) {
    let UpstreamAttempt { effective, target, endpoint, upgrade, response, .. } = *attempt;
    let mut options = PeerOptions::new();
    // Pingora's timers have a resolution of milliseconds and fail with less.
    let floored = |limit: Duration| limit.max(Duration::from_millis(1));
    // These apply to each read and write; the request has the deadline of the head. After an upgrade the idle timeout
    // of the tunnel applies. Pingora restarts them with every piece of a body.
    let tunnel = upgrade.then_some(effective.tunnel_idle_timeout);
    // A read timeout at the response's deadline is distinguishable from other faults, and answered, unlike an external
    // abort.
    let silence = effective.read_timeout + need.pause;
    let read = tunnel.unwrap_or_else(|| response.map_or(silence, |left| left.min(silence)));
    options.read_timeout = Some(floored(read));
    options.write_timeout = Some(floored(tunnel.unwrap_or(effective.write_timeout)));
    options.alpn = ALPN::H1;
    // Pingora could not check whether it is alive, and would log an error.
    options.idle_timeout = Some(NOTHING);
    let key = ConnectionKey::new(target, endpoint, || need.host.to_owned());
    // Until the endpoint agrees to the tunnel, its response has the timeout of every other one.
    let silence_max = upgrade.then_some(silence);
    let link = Arc::new(Link::new(key, need.pool_size, need.to_head, silence_max, need.overruns.clone()));
    let peer = HttpPeer {
        _address: SocketAddr::Inet(endpoint.address),
        // TLS is the link's.
        scheme: Scheme::HTTP,
        sni: String::new(),
        proxy: None,
        client_cert_key: None,
        group_key: group(target, endpoint),
        options,
    };
    (peer, link)
}

/// The key that keeps connections apart that Pingora's pool would mix: its own key has neither the protocol nor the pod
/// behind an address.
fn group(target: &Target, endpoint: &Endpoint) -> u64 {
    let mut hasher = DefaultHasher::new();
    (target, endpoint.id).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{AppProtocol, Effective};

    use super::*;
    use crate::sample_model::backend_key;

    #[test]
    fn timeouts_are_bounded_by_the_remaining_time() {
        let left = Some(Duration::from_secs(2));
        let endpoint = Endpoint::tcp(([10, 0, 0, 1], 80).into(), Some("a".into()));
        let target = Target { backend: backend_key("web"), protocol: AppProtocol::Ws, tls: None, fixed: None };
        let overruns = &IntCounter::new("a", "b").unwrap();
        let need = ConnectionNeeds { host: "a", pool_size: 9, to_head: false, overruns, pause: Duration::ZERO };
        let attempt = UpstreamAttempt {
            effective: &Effective::DEFAULT,
            target: &target,
            endpoint: &endpoint,
            upgrade: false,
            alone: false,
            remaining: left,
            response: None,
        };
        let peer = |attempt: &UpstreamAttempt<'_>, need: &ConnectionNeeds<'_>| super::peer(attempt, need).0;
        let short = peer(&UpstreamAttempt { response: left, ..attempt }, &need);
        assert_eq!(short.options.read_timeout, left);
        let bounded = peer(&attempt, &need);
        let read = Some(Effective::DEFAULT.read_timeout);
        assert_eq!(bounded.options.read_timeout, read);
        let tunnel = peer(&UpstreamAttempt { upgrade: true, ..attempt }, &need);
        assert_eq!(tunnel.options.read_timeout, Some(Effective::DEFAULT.tunnel_idle_timeout));
        let pause = Duration::from_secs(7);
        let uploads = peer(&attempt, &ConnectionNeeds { pause, ..need });
        assert_eq!(uploads.options.read_timeout, Some(Effective::DEFAULT.read_timeout + pause));
    }
}

//! How an endpoint is reached: Pingora's peer for it, with everything that keeps connections of different
//! targets apart. Addresses are never resolved here.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::upstreams::peer::{HttpPeer, PeerOptions, Scheme};
use rustls::pki_types::ServerName;
use tidegate_config::model::{AppProtocol, Endpoint, Target};

use crate::request::exchange::UpstreamAttempt;

/// What a request needs of its connection besides the target's own demands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'a> {
    /// The host of the request, for targets that name no server name of their own.
    pub(crate) host: &'a str,
    /// How long the connection is kept when nobody uses it.
    pub(crate) idle: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub(crate) http2_streams_max: usize,
    /// How long the client may pause in the body of the request, for which the endpoint is not to blame.
    pub(crate) pause: Duration,
}

/// The peer for an endpoint of a target.
pub(crate) fn peer(aim: &UpstreamAttempt<'_>, need: &Need<'_>) -> HttpPeer {
    let UpstreamAttempt { effective, target, endpoint, upgrade, remaining, response } = *aim;
    let tls = target.protocol == AppProtocol::Https;
    let mut options = PeerOptions::new();
    // Pingora's timers count whole milliseconds and fail on less.
    let floored = |limit: Duration| Some(limit.max(Duration::from_millis(1)));
    let connect = effective.connect_timeout;
    options.connection_timeout = floored(remaining.map_or(connect, |left| left.min(connect)));
    options.total_connection_timeout = options.connection_timeout;
    // These hold for each read and write to the end of the connection's use; when the head is due, the exchange knows.
    // After an upgrade silence is the tunnel's business.
    let tunnel = upgrade.then_some(effective.tunnel_idle_timeout);
    // Pingora begins this anew with every piece of a body, but not towards HTTP/2.
    let pause = if target.protocol == AppProtocol::H2c { Duration::ZERO } else { need.pause };
    // Silence until the end of the response's time is told from other faults, and answered, which a clock from outside cannot do.
    let silence = effective.read_timeout + pause;
    options.read_timeout = floored(tunnel.unwrap_or_else(|| response.map_or(silence, |left| left.min(silence))));
    options.write_timeout = floored(tunnel.unwrap_or(effective.write_timeout));
    options.idle_timeout = Some(need.idle);
    options.max_h2_streams = need.http2_streams_max;
    options.alpn = match target.protocol {
        AppProtocol::H2c => ALPN::H2,
        AppProtocol::Http | AppProtocol::Https | AppProtocol::Ws => ALPN::H1,
    };
    let verify = target.tls.as_ref().is_some_and(|tls| tls.verify);
    (options.verify_cert, options.verify_hostname) = (verify, verify);
    HttpPeer {
        _address: SocketAddr::Inet(endpoint.address),
        scheme: if tls { Scheme::HTTPS } else { Scheme::HTTP },
        sni: if tls { server_name(target, endpoint, need.host) } else { String::new() },
        proxy: None,
        client_cert_key: None,
        group_key: group(target, endpoint),
        options,
    }
}

/// The name to ask for. A host that cannot be one (an address in brackets, none at all) gives way to the endpoint's
/// address, since Pingora cannot connect without.
fn server_name(target: &Target, endpoint: &Endpoint, host: &str) -> String {
    let named = target.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
    let name = named.unwrap_or_else(|| host.trim_start_matches('[').trim_end_matches(']'));
    if ServerName::try_from(name).is_ok() { name.to_owned() } else { endpoint.address.ip().to_string() }
}

/// Keeps connections apart that Pingora's pool would mix: its key knows neither the protocol nor the pod behind an
/// address. The target is in it, so a changed TLS identity or protocol never meets an older connection.
fn group(target: &Target, endpoint: &Endpoint) -> u64 {
    let mut hasher = DefaultHasher::new();
    (target, endpoint.id).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pingora::upstreams::peer::Peer;
    use tidegate_config::model::{Effective, UpstreamTls};

    use super::*;
    use crate::sample_model::backend_key;

    const fn need(host: &str) -> Need<'_> {
        Need { host, idle: Duration::from_secs(50), http2_streams_max: 100, pause: Duration::ZERO }
    }

    fn endpoint(pod: &str) -> Endpoint {
        Endpoint::new(([10, 0, 0, 1], 80).into(), Some(pod.into()))
    }

    fn target(protocol: AppProtocol, tls: Option<UpstreamTls>) -> Target {
        Target { backend: backend_key("web"), protocol, tls, fixed: None }
    }

    fn peer_of(target: &Target, pod: &str, host: &str) -> HttpPeer {
        let endpoint = endpoint(pod);
        let aim = UpstreamAttempt {
            effective: &Effective::DEFAULT,
            target,
            endpoint: &endpoint,
            upgrade: false,
            remaining: None,
            response: None,
        };
        peer(&aim, &need(host))
    }

    #[test]
    fn protocols_are_spoken_as_named() {
        for (protocol, tls, alpn) in [
            (AppProtocol::Http, false, ALPN::H1),
            (AppProtocol::Ws, false, ALPN::H1),
            (AppProtocol::H2c, false, ALPN::H2),
            (AppProtocol::Https, true, ALPN::H1),
        ] {
            let peer = peer_of(&target(protocol, None), "a", "a.test");
            assert_eq!((peer.is_tls(), &peer.options.alpn), (tls, &alpn), "{protocol:?}");
            assert!(!peer.verify_cert() && peer.options.max_h2_streams == 100);
        }
    }

    #[track_caller]
    fn check_name(named: Option<&str>, host: &str, want: &str) {
        let tls = UpstreamTls { server_name: named.map(Into::into), verify: true };
        let peer = peer_of(&target(AppProtocol::Https, Some(tls)), "a", host);
        assert_eq!((peer.sni.as_str(), peer.verify_cert(), peer.verify_hostname()), (want, true, true));
    }

    #[test]
    fn a_server_name_is_always_there() {
        check_name(None, "a.test", "a.test");
        check_name(Some("b.test"), "a.test", "b.test");
        check_name(None, "[2001:db8::1]", "2001:db8::1");
        check_name(None, "", "10.0.0.1");
    }

    #[test]
    fn connections_of_different_targets_and_pods_never_meet() {
        let tls = |verify| Some(UpstreamTls { server_name: None, verify });
        let variants = [
            (target(AppProtocol::Http, None), "a"),
            (target(AppProtocol::Http, None), "b"),
            (target(AppProtocol::H2c, None), "a"),
            (target(AppProtocol::Https, None), "a"),
            (target(AppProtocol::Https, tls(false)), "a"),
            (target(AppProtocol::Https, tls(true)), "a"),
        ];
        let hashes: BTreeSet<u64> =
            variants.iter().map(|(target, pod)| peer_of(target, pod, "a.test").reuse_hash()).collect();
        assert_eq!(hashes.len(), variants.len());
        let again = peer_of(&variants[0].0, "a", "other.test").reuse_hash();
        assert!(hashes.contains(&again), "the host of a request in plain text splits no pool");
    }

    #[test]
    fn times_are_bounded_by_what_is_left() {
        let left = Some(Duration::from_secs(2));
        let (endpoint, target) = (endpoint("a"), target(AppProtocol::Ws, None));
        let aim = UpstreamAttempt {
            effective: &Effective::DEFAULT,
            target: &target,
            endpoint: &endpoint,
            upgrade: false,
            remaining: left,
            response: None,
        };
        let short = peer(&UpstreamAttempt { response: left, ..aim }, &need("a"));
        assert_eq!(short.options.read_timeout, left);
        let bounded = peer(&aim, &need("a"));
        let read = Some(Effective::DEFAULT.read_timeout);
        assert_eq!((bounded.options.connection_timeout, bounded.options.read_timeout), (left, read));
        let tunnel = peer(&UpstreamAttempt { upgrade: true, ..aim }, &need("a"));
        assert_eq!(tunnel.options.read_timeout, Some(Effective::DEFAULT.tunnel_idle_timeout));
        let pause = Duration::from_secs(7);
        for (protocol, more) in [(AppProtocol::Http, pause), (AppProtocol::H2c, Duration::ZERO)] {
            let target = self::target(protocol, None);
            let uploads = peer(&UpstreamAttempt { target: &target, ..aim }, &Need { pause, ..need("a") });
            assert_eq!(uploads.options.read_timeout, Some(Effective::DEFAULT.read_timeout + more), "{protocol:?}");
        }
    }
}

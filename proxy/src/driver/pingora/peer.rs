//! Pingora's peer for an endpoint, with everything that keeps connections to different targets apart. Addresses are
//! never resolved here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, PeerOptions, Scheme};
use pingora::utils::tls::{WrappedX509, parse_x509};
use tidegate_config::model::{AppProtocol, Authorities, Endpoint, Target, UpstreamTls};

use super::endpoint_socket::{ByLink, Link};
use super::own_tls::OwnTls;
use crate::request::exchange::UpstreamAttempt;
use crate::upstream::connection::ConnectionKey;
use crate::upstream::tls;

/// The number of authority bundles that a thread keeps in Pingora's form.
const BUNDLES_MAX: usize = 256;

/// The number of response bytes that an HTTP/2 endpoint may send before they are read. Pingora's default of 8 MiB, for
/// each stream and for a connection, would allow one slow client to occupy that much, and to block all other requests
/// on the same connection.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024;

/// The minimum and maximum window of a connection (RFC 9113 sections 6.9.1 and 6.9.2).
const WINDOW_BYTES_LEAST: u32 = (1 << 16) - 1;
const WINDOW_BYTES_MOST: u32 = (1 << 31) - 1;

/// The idle timeout of connections that can be used once.
const NOTHING: Duration = Duration::from_millis(1);

thread_local! {
    static BUNDLES: RefCell<HashMap<[u8; 32], Arc<CaType>>> = RefCell::default();
}

/// The requirements of a request on its connection, besides those of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'a> {
    /// The host of the request, for targets without a server name of their own.
    pub(crate) host: &'a str,
    /// The idle timeout of the connection.
    pub(crate) idle: Duration,
    /// The maximum number of concurrent requests on one HTTP/2 connection.
    pub(crate) http2_streams_max: usize,
    /// The maximum number of idle HTTP/1.1 connections of a thread.
    pub(crate) pool_size: usize,
    /// The maximum pause of the client in the request's body, which does not count against the endpoint.
    pub(crate) pause: Duration,
}

/// The peer for an endpoint of a target, and the link to it for HTTP/1.1.
pub(super) fn peer(aim: &UpstreamAttempt<'_>, need: &Need<'_>) -> (HttpPeer, Option<Arc<Link>>) {
    let UpstreamAttempt { effective, target, endpoint, upgrade, remaining, response } = *aim;
    let is_tls = target.protocol.is_tls();
    let mut options = PeerOptions::new();
    // Pingora's timers have a resolution of milliseconds and fail with less.
    let floored = |limit: Duration| Some(limit.max(Duration::from_millis(1)));
    let connect = effective.connect_timeout;
    options.connection_timeout = floored(remaining.map_or(connect, |left| left.min(connect)));
    options.total_connection_timeout = options.connection_timeout;
    // These apply to each read and write; the exchange has the deadline of the head. After an upgrade the idle timeout
    // of the tunnel applies.
    let tunnel = upgrade.then_some(effective.tunnel_idle_timeout);
    // Pingora restarts this with every piece of a body, but not for HTTP/2.
    let pause = if target.protocol.is_http2() { Duration::ZERO } else { need.pause };
    // A read timeout at the response's deadline is distinguishable from other faults, and answered, unlike an external
    // abort.
    let silence = effective.read_timeout + pause;
    options.read_timeout = floored(tunnel.unwrap_or_else(|| response.map_or(silence, |left| left.min(silence))));
    options.write_timeout = floored(tunnel.unwrap_or(effective.write_timeout));
    options.idle_timeout = Some(need.idle);
    options.max_h2_streams = need.http2_streams_max;
    // Room for all streams, so that slow clients do not block the other streams.
    let streams = u32::try_from(need.http2_streams_max).unwrap_or(u32::MAX);
    let connection_window = streams.saturating_mul(STREAM_WINDOW_BYTES).clamp(WINDOW_BYTES_LEAST, WINDOW_BYTES_MOST);
    options.h2_stream_window_size = Some(STREAM_WINDOW_BYTES);
    options.h2_connection_window_size = Some(connection_window);
    options.alpn = match target.protocol {
        AppProtocol::H2c | AppProtocol::H2 => ALPN::H2,
        AppProtocol::Http | AppProtocol::Https | AppProtocol::Ws => ALPN::H1,
    };
    let within = options.connection_timeout.unwrap_or(connect);
    let name = match &target.tls {
        _ if !is_tls => String::new(),
        Some(transport) => tls::server_name(transport, endpoint.address, need.host),
        None => tls::server_name(&UpstreamTls::default(), endpoint.address, need.host),
    };
    let (mut is_plain, mut link) = (!is_tls, None);
    if target.protocol.is_http2() {
        let verification = target.tls.as_ref().and_then(|tls| tls.verification.as_ref());
        (options.verify_cert, options.verify_hostname) = (verification.is_some(), verification.is_some());
        options.ca = verification.and_then(|by| by.authorities.as_ref()).map(bundle);
        if let Some(transport) = target.tls.as_ref().filter(|transport| is_tls && is_own(transport)) {
            options.custom_l4 = Some(Arc::new(OwnTls { tls: transport.clone(), name: name.clone(), within }));
            is_plain = true;
        }
    } else {
        let key = ConnectionKey::new(target, endpoint, || need.host.to_owned());
        let made = Arc::new(Link::new(key, need.pool_size));
        options.custom_l4 = Some(Arc::new(ByLink { link: Arc::clone(&made), within }));
        (is_plain, link) = (true, Some(made));
    }
    if options.custom_l4.is_some() {
        // Pingora could not check whether it is alive, and would log an error.
        (options.idle_timeout, options.max_h2_streams) = (Some(NOTHING), 1);
    }
    let peer = HttpPeer {
        _address: SocketAddr::Inet(endpoint.address),
        scheme: if is_plain { Scheme::HTTP } else { Scheme::HTTPS },
        sni: name,
        proxy: None,
        client_cert_key: None,
        group_key: group(target, endpoint),
        options,
    };
    (peer, link)
}

/// Returns `true` if Pingora's connector does not support the settings: it verifies the server name and nothing else,
/// and requires the private key of a certificate.
fn is_own(tls: &UpstreamTls) -> bool {
    tls.client.is_some() || tls.verification.as_ref().is_some_and(|by| !by.names.is_empty())
}

/// Authorities in Pingora's form. Pingora parses each again, which cannot fail for a bundle of the model.
fn bundle(authorities: &Authorities) -> Arc<CaType> {
    BUNDLES.with_borrow_mut(|bundles| {
        if let Some(known) = bundles.get(authorities.digest()) {
            return Arc::clone(known);
        }
        if bundles.len() >= BUNDLES_MAX {
            bundles.clear();
        }
        let wrapped = authorities.certificates().iter().map(|one| WrappedX509::new(one.to_vec(), parse_x509));
        Arc::clone(bundles.entry(*authorities.digest()).or_insert(wrapped.collect()))
    })
}

/// The key that keeps connections apart that Pingora's pool would mix: its own key has neither the protocol nor the pod
/// behind an address. The target is part of it, so a changed TLS identity or protocol never gets an older connection.
fn group(target: &Target, endpoint: &Endpoint) -> u64 {
    let mut hasher = DefaultHasher::new();
    (target, endpoint.id).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pingora::upstreams::peer::Peer;
    use tidegate_config::model::{Certificate, Effective, SubjectName, UpstreamVerification};
    use tidegate_config::object::ObjectName;

    use super::*;
    use crate::sample_model::backend_key;

    const fn need(host: &str) -> Need<'_> {
        Need { host, idle: Duration::from_secs(50), http2_streams_max: 100, pool_size: 9, pause: Duration::ZERO }
    }

    fn endpoint(pod: &str) -> Endpoint {
        Endpoint::tcp(([10, 0, 0, 1], 80).into(), Some(pod.into()))
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
        peer(&aim, &need(host)).0
    }

    #[test]
    fn each_protocol_selects_its_http_version() {
        for (protocol, by_link, tls, alpn) in [
            (AppProtocol::Http, true, false, ALPN::H1),
            (AppProtocol::Ws, true, false, ALPN::H1),
            (AppProtocol::H2c, false, false, ALPN::H2),
            (AppProtocol::Https, true, false, ALPN::H1),
            (AppProtocol::H2, false, true, ALPN::H2),
        ] {
            let peer = peer_of(&target(protocol, None), "a", "a.test");
            let got = (peer.options.custom_l4.is_some(), peer.is_tls(), &peer.options.alpn);
            assert_eq!(got, (by_link, tls, &alpn), "{protocol:?}");
            assert!(by_link || (!peer.verify_cert() && peer.options.max_h2_streams == 100));
        }
    }

    fn authorities() -> Authorities {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
        Authorities::from_pem(&[pem.as_bytes()]).unwrap()
    }

    fn verification(authorities: Option<&Authorities>, names: &[SubjectName]) -> Arc<UpstreamVerification> {
        Arc::new(UpstreamVerification { authorities: authorities.cloned(), names: names.into() })
    }

    /// Certificates of the edge, each with the same serial number, name and Secret.
    fn certificate() -> Arc<Certificate> {
        let mut params = rcgen::CertificateParams::new(vec!["edge.test".to_owned()]).unwrap();
        params.serial_number = Some(1.into());
        let key = rcgen::KeyPair::generate().unwrap();
        let chain = params.self_signed(&key).unwrap().pem();
        let secret = ObjectName::new("edge", "client");
        Arc::new(Certificate::from_pem(secret, chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap())
    }

    #[test]
    fn what_pingora_cannot_verify_is_not_left_to_it() {
        let one = authorities();
        let check = |verification: Option<Arc<UpstreamVerification>>, client: Option<Arc<Certificate>>, own: bool| {
            let tls = UpstreamTls { server_name: Some("b.test".into()), verification, client };
            let peer = peer_of(&target(AppProtocol::H2, Some(tls)), "a", "a.test");
            assert_eq!((peer.options.custom_l4.is_some(), peer.is_tls()), (own, !own));
            peer.options.ca.as_ref().map(|ca| ca.len())
        };
        assert_eq!(check(None, None, false), None);
        assert_eq!(check(Some(verification(None, &[])), None, false), None);
        assert_eq!(check(Some(verification(Some(&one), &[])), None, false), Some(1));
        check(Some(verification(Some(&one), &[SubjectName::Dns("c.test".into())])), None, true);
        check(None, Some(certificate()), true);
    }

    #[track_caller]
    fn check_name(named: Option<&str>, host: &str, want: &str) {
        let tls = UpstreamTls {
            server_name: named.map(Into::into),
            verification: Some(verification(None, &[])),
            client: None,
        };
        let peer = peer_of(&target(AppProtocol::H2, Some(tls)), "a", host);
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
    fn different_targets_and_pods_share_no_connections() {
        let h2 = |verification, client, name: Option<&str>| {
            let tls = UpstreamTls { server_name: name.map(Into::into), verification, client };
            (target(AppProtocol::H2, Some(tls)), "a")
        };
        let (one, two) = (authorities(), authorities());
        let uri = |uri: &str| [SubjectName::Uri(uri.into())];
        let variants = [
            (target(AppProtocol::Http, None), "a"),
            (target(AppProtocol::Http, None), "b"),
            (target(AppProtocol::H2c, None), "a"),
            (target(AppProtocol::Https, None), "a"),
            (target(AppProtocol::H2, None), "a"),
            h2(None, None, None),
            h2(None, None, Some("b.test")),
            h2(Some(verification(None, &[])), None, None),
            h2(Some(verification(Some(&one), &[])), None, None),
            h2(Some(verification(Some(&two), &[])), None, None),
            h2(Some(verification(Some(&one), &uri("spiffe://a"))), None, None),
            h2(Some(verification(Some(&one), &uri("spiffe://b"))), None, None),
            h2(None, Some(certificate()), None),
            h2(None, Some(certificate()), None),
        ];
        let hashes: BTreeSet<u64> =
            variants.iter().map(|(target, pod)| peer_of(target, pod, "a.test").reuse_hash()).collect();
        assert_eq!(hashes.len(), variants.len());
        let again = peer_of(&variants[0].0, "a", "other.test").reuse_hash();
        assert!(hashes.contains(&again), "the host of a request in plain text splits no pool");
    }

    #[test]
    fn timeouts_are_bounded_by_the_remaining_time() {
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
        let peer = |aim: &UpstreamAttempt<'_>, need: &Need<'_>| super::peer(aim, need).0;
        let short = peer(&UpstreamAttempt { response: left, ..aim }, &need("a"));
        assert_eq!(short.options.read_timeout, left);
        let bounded = peer(&aim, &need("a"));
        let read = Some(Effective::DEFAULT.read_timeout);
        assert_eq!((bounded.options.connection_timeout, bounded.options.read_timeout), (left, read));
        let tunnel = peer(&UpstreamAttempt { upgrade: true, ..aim }, &need("a"));
        assert_eq!(tunnel.options.read_timeout, Some(Effective::DEFAULT.tunnel_idle_timeout));
        let pause = Duration::from_secs(7);
        for (protocol, more) in
            [(AppProtocol::Http, pause), (AppProtocol::H2c, Duration::ZERO), (AppProtocol::H2, Duration::ZERO)]
        {
            let target = self::target(protocol, None);
            let uploads = peer(&UpstreamAttempt { target: &target, ..aim }, &Need { pause, ..need("a") });
            assert_eq!(uploads.options.read_timeout, Some(Effective::DEFAULT.read_timeout + more), "{protocol:?}");
        }
    }
}

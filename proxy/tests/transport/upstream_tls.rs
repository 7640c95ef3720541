//! Endpoints behind TLS: the verified authorities and names, and changes of them at run time.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{HandshakeKind, ServerConfig};
use tidegate_config::model::{
    Action, AppProtocol, BackendKey, CaBundle, HostPattern, HostRoutes, Route, SubjectName, Target, UpstreamTls,
    UpstreamVerification, WeightedTarget,
};
use tidegate_config::object::ObjectName;
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::bed::{Bed, head_len, http, read_until};
use super::clients::Http1;
use super::listeners::Authority;

/// A server that answers with the requested server name and the version of HTTP.
pub struct Server {
    pub address: SocketAddr,
    /// The kinds of the handshakes.
    shaken: watch::Receiver<Vec<HandshakeKind>>,
}

impl Server {
    /// Starts it with a certificate, and requires one of clients if an authority for them is given.
    pub async fn start(certificate: &(String, KeyPair), clients: Option<&Authority>) -> Self {
        Self::with(certificate, clients, false).await
    }

    /// The same; it may close each connection after its answer.
    async fn with((chain, key): &(String, KeyPair), clients: Option<&Authority>, closes: bool) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let config = match clients {
            Some(authority) => {
                let roots = Arc::clone(authority.bundle().roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
                config.unwrap().with_client_cert_verifier(verifier)
            }
            None => config.unwrap().with_no_client_auth(),
        };
        let chain = vec![PemObject::from_pem_slice(chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        // Without the check of a usual server, which cannot read certificates of version 1.
        let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
        let single = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let mut config = config.with_cert_resolver(Arc::new(single));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, shaken) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, tell) = (acceptor.clone(), tell.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    tell.send_modify(|all| all.extend(stream.get_ref().1.handshake_kind()));
                    answer(stream, closes).await;
                });
            }
        });
        Self { address, shaken }
    }

    fn shaken(&self) -> Vec<HandshakeKind> {
        self.shaken.borrow().clone()
    }
}

async fn answer(mut stream: TlsStream<TcpStream>, closes: bool) {
    let session = stream.get_ref().1;
    let name = session.server_name().unwrap_or("nobody").to_owned();
    if session.alpn_protocol() == Some(b"h2") {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let text = format!("{name} h2");
            let head = ::http::Response::builder().header("content-length", text.len()).body(()).unwrap();
            respond.send_response(head, false).unwrap().send_data(text.into(), true).unwrap();
        }
        return;
    }
    let mut bytes = Vec::new();
    while let Some(head) = read_until(&mut stream, &mut bytes, head_len).await {
        bytes.drain(..head);
        let body = format!("{name} h1");
        let says = if closes { "Connection: close\r\n" } else { "" };
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{says}\r\n{body}", body.len());
        if stream.write_all(response.as_bytes()).await.is_err() || closes {
            stream.shutdown().await.ok();
            return;
        }
    }
}

pub fn verified(authorities: Option<CaBundle>, names: &[SubjectName]) -> UpstreamTls {
    let verification = Some(Arc::new(UpstreamVerification { authorities, names: names.into() }));
    UpstreamTls { server_name: Some("a.example".into()), verification, client: None }
}

/// A running edge of one thread, so that all requests share one pool.
struct Edge {
    bed: Bed,
    address: SocketAddr,
}

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

impl Edge {
    async fn start(driver: Driver) -> Self {
        let key = http("127.0.0.1:0");
        let bed = Bed::with(&[key], |options| (options.threads, options.driver) = (1, driver)).await;
        let bound = bed.bound(|bound| bound.get(&key).is_some_and(|bind| bind.threads() == 1)).await;
        let address = bound.get(&key).unwrap().address().unwrap();
        Self { bed, address }
    }

    /// Sends a request to an endpoint over a transport; returns the status and the body of the answer.
    async fn ask(&mut self, server: &Server, protocol: AppProtocol, tls: &UpstreamTls) -> (u16, String) {
        let any = self.bed.parts.hosts.shared().get(&HostPattern::Any).unwrap().clone();
        let mut route = Route::clone(any.fallback().unwrap());
        let backend = BackendKey::tcp(ObjectName::new("shop", "web"), 80);
        let target = Target { backend, protocol, tls: Some(tls.clone()), fixed: None };
        route.action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
        let routes = HostRoutes::new(HostPattern::Any, Vec::new(), Some(Arc::new(route)));
        self.bed.parts.hosts.insert(&HostPattern::Any.into(), Arc::new(routes));
        self.bed.lead_to(&[server.address]);
        let response = Http1::connect(self.address).await.get("/").await;
        let body = response.split_once("\r\n\r\n").unwrap().1.to_owned();
        (response[9..12].parse().unwrap(), body)
    }

    async fn check(&mut self, server: &Server, tls: &UpstreamTls, works: bool) {
        let (status, body) = self.ask(server, AppProtocol::Https, tls).await;
        assert_eq!((status, body == "a.example h1"), (if works { 200 } else { 502 }, works), "{tls:?}: {body}");
    }
}

fn params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

fn dns(name: &str) -> SubjectName {
    SubjectName::Dns(name.into())
}

fn uri(name: &str) -> SubjectName {
    SubjectName::Uri(name.into())
}

#[tokio::test]
async fn an_endpoint_certificate_must_be_valid_for_its_name() {
    let (good, other) = (Authority::new(), Authority::new());
    let named = Server::start(&good.issue("a.example"), None).await;
    let misnamed = Server::start(&good.issue("b.example"), None).await;
    let mut expired = params("a.example");
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = Server::start(&good.sign(&expired), None).await;
    for driver in DRIVERS {
        let mut edge = Edge::start(driver).await;
        // By the server name, and by other names.
        for names in [&[][..], &[dns("x.example"), dns("a.example")]] {
            let by = |authority: &Authority| verified(Some(authority.bundle()), names);
            edge.check(&named, &by(&good), true).await;
            edge.check(&named, &by(&other), false).await;
            edge.check(&misnamed, &by(&good), false).await;
            edge.check(&expired, &by(&good), false).await;
            // The system's authorities do not include this one.
            edge.check(&named, &verified(None, names), false).await;
            edge.check(&named, &by(&good), true).await;
        }
    }
    for server in [&misnamed, &expired] {
        assert!(server.shaken().is_empty(), "no request came so far");
    }
}

/// An endpoint that is not verified may have any certificate.
#[tokio::test]
async fn an_unverified_endpoint_may_have_a_certificate_of_version_1() {
    let pem = include_str!("version_1.pem");
    let (chain, key) = pem.split_at(pem.find("-----BEGIN PRIVATE KEY").unwrap());
    let server = Server::start(&(chain.to_owned(), KeyPair::from_pem(key).unwrap()), None).await;
    for driver in [Driver::Both, Driver::Pingora] {
        let mut edge = Edge::start(driver).await;
        edge.check(&server, &UpstreamTls { verification: None, ..verified(None, &[]) }, true).await;
        edge.check(&server, &verified(None, &[dns("v1.test")]), false).await;
    }
}

#[tokio::test]
async fn verified_names_may_differ_from_the_sni() {
    let good = Authority::new();
    let mut both = params("b.example");
    both.subject_alt_names.push(SanType::URI("spiffe://shop/web".try_into().unwrap()));
    let server = Server::start(&good.sign(&both), None).await;
    for driver in DRIVERS {
        let mut edge = Edge::start(driver).await;
        for (names, works) in [
            (&[dns("b.example")][..], true),
            (&[uri("spiffe://shop/web")], true),
            (&[uri("spiffe://shop/other"), dns("b.example")], true),
            (&[uri("spiffe://shop/other")], false),
            // The requested server name is not accepted if other names are given.
            (&[dns("a.example")], false),
            (&[], false),
        ] {
            edge.check(&server, &verified(Some(good.bundle()), names), works).await;
        }
    }
}

#[tokio::test]
async fn a_pooled_connection_is_not_reused_under_other_tls_settings() {
    let (good, other) = (Authority::new(), Authority::new());
    for driver in DRIVERS {
        let server = Server::start(&good.issue("a.example"), None).await;
        let mut edge = Edge::start(driver).await;
        let by = |authority: &Authority| verified(Some(authority.bundle()), &[]);
        edge.check(&server, &by(&good), true).await;
        // Another bundle with the same content is the same transport.
        edge.check(&server, &by(&good), true).await;
        assert_eq!(server.shaken().len(), 1);
        edge.check(&server, &by(&other), false).await;
        edge.check(&server, &UpstreamTls { verification: None, ..by(&good) }, true).await;
        assert_eq!(server.shaken().len(), 2);
        edge.check(&server, &by(&good), true).await;
        assert_eq!(server.shaken().len(), 2, "the first one was kept");
    }
}

#[tokio::test]
async fn the_edge_presents_its_current_client_certificate() {
    let (good, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    for driver in DRIVERS {
        let server = Server::with(&good.issue("a.example"), Some(&clients), true).await;
        let mut edge = Edge::start(driver).await;
        let without = verified(Some(good.bundle()), &[]);
        let with =
            |authority: &Authority| UpstreamTls { client: Some(authority.certificate("edge")), ..without.clone() };
        edge.check(&server, &without, false).await;
        let first = with(&clients);
        edge.check(&server, &first, true).await;
        edge.check(&server, &first, true).await;
        assert_eq!(server.shaken(), [HandshakeKind::Full, HandshakeKind::Resumed]);
        edge.check(&server, &with(&strangers), false).await;
        edge.check(&server, &with(&clients), true).await;
        assert_eq!(server.shaken().last(), Some(&HandshakeKind::Full), "a session belongs to its certificate");
        let stranger = UpstreamTls { verification: verified(Some(clients.bundle()), &[]).verification, ..first };
        edge.check(&server, &stranger, false).await;
    }
}

#[tokio::test]
async fn http2_over_tls_is_used_if_the_target_says_so() {
    let good = Authority::new();
    let server = Server::start(&good.issue("a.example"), None).await;
    let mut edge = Edge::start(Driver::Both).await;
    for names in [&[][..], &[dns("a.example")]] {
        let tls = verified(Some(good.bundle()), names);
        for _ in 0..2 {
            let answer = edge.ask(&server, AppProtocol::H2, &tls).await;
            assert_eq!(answer, (200, "a.example h2".to_owned()));
        }
        let other = verified(Some(Authority::new().bundle()), names);
        assert_eq!(edge.ask(&server, AppProtocol::H2, &other).await.0, 502);
    }
    assert_eq!(server.shaken(), [HandshakeKind::Full; 2], "a connection serves all requests of its settings");
}

//! Listeners with certificates, client verification and routes of their own on one bind.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, HandshakeKind};
use tidegate_config::model::{
    Bind, BindKey, CaBundle, Certificate, ClientVerification, HostPattern, HostRoutes, Listener, ListenerName,
    ListenerTls, TableName, TlsMode, VerificationMode, VirtualHost, WildcardDepth,
};
use tidegate_config::object::ObjectName;

use super::bed::{Bed, https};
use super::clients::{ECDSA, Http1, TlsClient, assert_ok, connect, h2_status, shown};
use crate::anyone::Anyone;

const VERSIONS: [&[&rustls::SupportedProtocolVersion]; 2] = [&[&rustls::version::TLS13], &[&rustls::version::TLS12]];

/// An authority that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn bundle(&self) -> CaBundle {
        CaBundle::from_pem(&[self.pem.as_bytes()]).unwrap()
    }

    pub fn issue(&self, name: &str) -> (String, KeyPair) {
        self.sign(&CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    pub fn sign(&self, params: &CertificateParams) -> (String, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key)
    }

    /// A certificate in the form of the model.
    pub fn certificate(&self, name: &str) -> Arc<Certificate> {
        let (chain, key) = self.issue(name);
        let secret = ObjectName::new("shop", name);
        Arc::new(Certificate::from_pem(secret, chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap())
    }
}

pub fn certificate(name: &str) -> Arc<Certificate> {
    Authority::new().certificate(name)
}

fn table(name: &str) -> TableName {
    TableName::Named(name.into())
}

/// A listener for a host, `*.` and a suffix, or every host if there is none, with certificates of its own.
pub fn listener(name: &str, host: &str, certificates: &[&Arc<Certificate>]) -> Listener {
    let host = match host.strip_prefix("*.") {
        Some(suffix) => HostPattern::Wildcard(suffix.into(), WildcardDepth::Any),
        None if host.is_empty() => HostPattern::Any,
        None => HostPattern::parse(host).unwrap(),
    };
    let certificates = certificates.iter().copied().cloned().collect();
    let tls = ListenerTls { mode: TlsMode::Http, certificates, clients: None };
    Listener {
        name: ListenerName(name.into()),
        host,
        table: table(name),
        tls: Some(Arc::new(tls)),
        port: None,
        origin: None,
    }
}

/// The same listener, verifying clients.
pub fn verifying(listener: Listener, authority: &Authority, mode: VerificationMode) -> Listener {
    let clients = Some(Arc::new(ClientVerification { authorities: authority.bundle(), mode }));
    let tls = ListenerTls { clients, ..(**listener.tls.as_ref().unwrap()).clone() };
    Listener { tls: Some(Arc::new(tls)), ..listener }
}

/// Sets the listeners of the bind; each routes every request of its table.
pub fn set(bed: &mut Bed, key: BindKey, listeners: Vec<Listener>) {
    let any = bed.parts.hosts.shared().get(&HostPattern::Any).unwrap().clone();
    for listener in &listeners {
        let host = VirtualHost::new(listener.table.clone(), HostPattern::Any);
        let routes = HostRoutes::new(host.clone(), Vec::new(), any.fallback().cloned());
        bed.parts.hosts.insert(&host, Arc::new(routes));
    }
    bed.parts.binds = [Bind { key, listeners: listeners.into() }].into();
    bed.publish();
}

async fn bed(listeners: Vec<Listener>) -> (Bed, BindKey, SocketAddr) {
    let key = https("127.0.0.1:0");
    let mut bed = Bed::start(&[key]).await;
    let address = bed.address(key).await;
    set(&mut bed, key, listeners);
    (bed, key, address)
}

async fn check_shown(address: SocketAddr, name: &'static str, want: &Certificate) {
    let stream = TlsClient { name, ..TlsClient::default() }.connect(address).await.unwrap();
    assert_eq!(shown(&stream), want.key.cert[0], "for {name}");
}

#[tokio::test]
async fn the_most_specific_listener_presents_its_certificates() {
    let [one, two, wild, any] = ["one.example", "two.one.example", "*.one.example", "any.example"].map(certificate);
    let (mut bed, key, address) = bed(vec![
        listener("one", "one.example", &[&one]),
        listener("wild", "*.one.example", &[&wild, &two]),
        listener("any", "", &[&any]),
    ])
    .await;
    check_shown(address, "one.example", &one).await;
    check_shown(address, "a.one.example", &wild).await;
    // Two certificates match the name, and the first one is preferred; none matches two labels, and again the first one
    // is presented.
    check_shown(address, "two.one.example", &wild).await;
    check_shown(address, "a.b.one.example", &wild).await;
    for name in ["other.example", "127.0.0.1"] {
        check_shown(address, name, &any).await;
    }
    let renewed = certificate("one.example");
    set(
        &mut bed,
        key,
        vec![listener("one", "one.example", &[&renewed]), listener("wild", "*.one.example", &[&two, &wild])],
    );
    check_shown(address, "one.example", &renewed).await;
    check_shown(address, "two.one.example", &two).await;
    check_shown(address, "a.one.example", &wild).await;
}

#[tokio::test]
async fn server_names_without_a_listener_or_a_certificate_are_refused() {
    let one = certificate("one.example");
    let (bed, _, address) = bed(vec![listener("one", "one.example", &[&one]), listener("b", "b.example", &[])]).await;
    let refused = |name| async move {
        let error = TlsClient { name, ..TlsClient::default() }.connect(address).await.unwrap_err();
        error.to_string()
    };
    for name in ["other.example", "a.one.example", "127.0.0.1"] {
        let error = refused(name).await;
        assert!(error.contains("UnrecognisedName") || error.contains("UnrecognizedName"), "{error}");
    }
    bed.until_metric("tidegate_tls_handshake_failures_total", Some("unknown-name"), 3.0).await;
    refused("b.example").await;
    check_shown(address, "one.example", &one).await;
}

/// A client with a certificate of an authority, or without one.
pub fn client(
    issued: Option<&(String, KeyPair)>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(vec![ECDSA])));
    let Some((chain, key)) = issued else { return Arc::new(config.with_no_client_auth()) };
    let chain = vec![rustls::pki_types::pem::PemObject::from_pem_slice(chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    Arc::new(config.with_client_auth_cert(chain, key).unwrap())
}

/// Whether a client gets an answer for a name, and the result of its handshake. TLS 1.3 lets a client send before it is
/// refused.
async fn asks(config: &Arc<ClientConfig>, name: &'static str, address: SocketAddr) -> Option<HandshakeKind> {
    let stream = connect(config, name, address).await.ok()?;
    let kind = stream.get_ref().1.handshake_kind();
    let mut http = Http1::over(stream);
    http.send(&format!("GET /x HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
    assert_ok(&http.response().await?, "/x ");
    kind
}

#[tokio::test]
async fn each_listener_verifies_clients_as_configured() {
    let (good, other) = (Authority::new(), Authority::new());
    let (good_client, other_client) = (good.issue("client"), other.issue("client"));
    let shown = certificate("*.example");
    let valid = verifying(listener("valid", "valid.example", &[&shown]), &good, VerificationMode::ValidOnly);
    let lax = verifying(listener("lax", "lax.example", &[&shown]), &good, VerificationMode::InsecureFallback);
    let open = listener("open", "", &[&shown]);
    let (mut bed, key, address) = bed(vec![valid, lax.clone(), open.clone()]).await;
    let failures = "tidegate_tls_handshake_failures_total";
    for (count, versions) in (1..).zip(VERSIONS) {
        let with = |issued| client(issued, versions);
        assert!(asks(&with(Some(&good_client)), "valid.example", address).await.is_some());
        assert!(asks(&with(Some(&other_client)), "valid.example", address).await.is_none());
        assert!(asks(&with(None), "valid.example", address).await.is_none());
        bed.until_metric(failures, Some("client-certificate"), 2.0 * f64::from(count)).await;
        for issued in [Some(&good_client), Some(&other_client), None] {
            assert!(asks(&with(issued), "lax.example", address).await.is_some(), "with {}", issued.is_some());
            assert!(asks(&with(issued), "open.example", address).await.is_some());
        }
    }
    // Another authority replaces the first.
    let valid = verifying(listener("valid", "valid.example", &[&shown]), &other, VerificationMode::ValidOnly);
    set(&mut bed, key, vec![valid, lax, open]);
    assert!(asks(&client(Some(&good_client), VERSIONS[0]), "valid.example", address).await.is_none());
    assert!(asks(&client(Some(&other_client), VERSIONS[0]), "valid.example", address).await.is_some());
}

#[tokio::test]
async fn a_tls_session_resumes_only_under_the_same_client_verification() {
    let (first, second) = (Authority::new(), Authority::new());
    let issued = first.issue("client");
    let shown = certificate("*.example");
    let plain = || listener("one", "one.example", &[&shown]);
    for versions in VERSIONS {
        for tickets in [true, false] {
            let (mut bed, key, address) = bed(vec![plain()]).await;
            let mut edge = (*bed.parts.edge).clone();
            edge.tls.tickets = tickets;
            bed.parts.edge = Arc::new(edge);
            bed.publish();
            let config = client(Some(&issued), versions);
            let ask = async |want| {
                assert_eq!(asks(&config, "one.example", address).await, want, "{versions:?}, tickets {tickets}");
            };
            ask(Some(HandshakeKind::Full)).await;
            ask(Some(HandshakeKind::Resumed)).await;
            // The client was not verified when its session began.
            set(&mut bed, key, vec![verifying(plain(), &first, VerificationMode::ValidOnly)]);
            ask(Some(HandshakeKind::Full)).await;
            ask(Some(HandshakeKind::Resumed)).await;
            // Its certificate is no longer valid.
            set(&mut bed, key, vec![verifying(plain(), &second, VerificationMode::ValidOnly)]);
            ask(None).await;
        }
    }
}

/// The status of a request for a host over a connection that was made for a name, over either version of HTTP.
async fn status(address: SocketAddr, name: &'static str, host: &str) -> u16 {
    let stream = TlsClient { name, ..TlsClient::default() }.connect(address).await.unwrap();
    let mut http = Http1::over(stream);
    http.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    let first: u16 = http.response().await.unwrap()[9..12].parse().unwrap();
    // The connection stays open after any response.
    http.send(&format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
    assert_ok(&http.response().await.unwrap(), "/ ");
    let stream = TlsClient { name, alpn: &[b"h2"], ..TlsClient::default() }.connect(address).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let second = h2_status(&mut sender, host).await;
    assert_eq!(first, second, "for {host} over {name}");
    first
}

#[tokio::test]
async fn a_request_for_another_listener_than_the_handshake_is_a_421() {
    let shown = certificate("*.example");
    let listeners = || {
        vec![
            listener("exact", "second.wild.example", &[&shown]),
            listener("wild", "*.wild.example", &[&shown]),
            listener("one", "one.example", &[&shown]),
        ]
    };
    let (mut bed, key, address) = bed(listeners()).await;
    assert_eq!(status(address, "one.example", "one.example").await, 200);
    // Two names of one listener share its connections.
    assert_eq!(status(address, "a.wild.example", "b.wild.example:443").await, 200);
    assert_eq!(status(address, "a.wild.example", "second.wild.example").await, 421);
    assert_eq!(status(address, "second.wild.example", "a.wild.example").await, 421);
    assert_eq!(status(address, "one.example", "a.wild.example").await, 421);
    // No listener has this host.
    assert_eq!(status(address, "one.example", "other.example").await, 404);
    let with_any = listeners().into_iter().chain([listener("any", "", &[&shown])]).collect();
    set(&mut bed, key, with_any);
    assert_eq!(status(address, "one.example", "other.example").await, 421);
    assert_eq!(status(address, "other.example", "another.example").await, 200);
}

#[tokio::test]
async fn a_change_of_client_verification_closes_the_connection() {
    let shown = certificate("one.example");
    let authority = Authority::new();
    let plain = || listener("one", "one.example", &[&shown]);
    let (mut bed, key, address) = bed(vec![plain()]).await;
    let stream = TlsClient { name: "one.example", ..TlsClient::default() }.connect(address).await.unwrap();
    let mut http = Http1::over(stream);
    let ask = async |http: &mut Http1<_>| {
        http.send("GET / HTTP/1.1\r\nHost: one.example\r\n\r\n").await;
        http.response().await.unwrap()[9..12].to_owned()
    };
    assert_eq!(ask(&mut http).await, "200");
    set(&mut bed, key, vec![verifying(plain(), &authority, VerificationMode::ValidOnly)]);
    assert_eq!(ask(&mut http).await, "421");
    set(&mut bed, key, vec![plain()]);
    assert_eq!(ask(&mut http).await, "200");
}

#[tokio::test]
async fn listeners_of_the_shared_table_accept_each_others_hosts() {
    let named =
        |name: &str, host: &str| Listener { host: HostPattern::parse(host).unwrap(), ..Listener::for_every_host(name) };
    let (_bed, _, address) = bed(vec![named("a", "a.example"), named("b", "b.example")]).await;
    assert_eq!(status(address, "a.example", "b.example").await, 200);
}

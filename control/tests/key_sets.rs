//! The keys of issuers of tokens, with an issuer of the test on loopback.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hickory_resolver::proto::op::{Message, OpCode};
use hickory_resolver::proto::rr::rdata::A;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use prometheus::Registry;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tidegate_config::model::CaBundle;
use tidegate_config::model::auth::{Jwt, KeySet, KeySource, TokenFault};
use tidegate_control::options::{AddressPolicy, UrlHosts};
use tidegate_control::{
    Event, KeyClient, KeySetFollower, KeySetLimits, KeySetMetrics, KeySources, KnownKeys, Upstream,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);
const MS: fn(u64) -> Duration = Duration::from_millis;

/// What the issuer does when it is asked for a path.
#[derive(Clone)]
enum Says {
    /// This head, without the length, and this body.
    Answer(String, Vec<u8>),
    /// A head, and a body that does not end.
    Flood,
    /// Nothing.
    Hang,
}

/// The issuer: what it says by path, and how often each was asked for.
#[derive(Default)]
struct Issuer {
    paths: BTreeMap<String, Says>,
    asked: BTreeMap<String, usize>,
}

struct Run {
    issuer: Arc<Mutex<Issuer>>,
    /// The address of the issuer.
    at: SocketAddr,
    wanted: watch::Sender<Arc<KeySources>>,
    api_server: watch::Sender<Arc<BTreeSet<SocketAddr>>>,
    events: mpsc::Receiver<Event>,
    registry: Registry,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

/// What the client of a run may do and trusts.
#[derive(Default)]
struct Setup {
    refuses_loopback: bool,
    tls: Option<TlsAcceptor>,
    authorities: Option<CaBundle>,
    known: KnownKeys,
    hosts: UrlHosts,
}

fn quick() -> KeySetLimits {
    KeySetLimits { interval: Duration::from_secs(3600), retry: MS(10)..=MS(20), ..KeySetLimits::default() }
}

async fn start(setup: Setup, limits: KeySetLimits) -> Run {
    let issuer = Arc::new(Mutex::new(Issuer::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let names = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let dns = Upstream::Servers(vec![names.local_addr().unwrap()]);
    let mut tasks = JoinSet::new();
    tasks.spawn(name_server(names));
    tasks.spawn(serve(listener, Arc::clone(&issuer), setup.tls));
    let ((wanted, sources), (api_server, sockets)) = (watch::channel(Arc::default()), watch::channel(Arc::default()));
    let (sender, events) = mpsc::channel(64);
    let (stop, registry) = (CancellationToken::new(), Registry::new());
    let addresses = AddressPolicy { allow_loopback: !setup.refuses_loopback, ..AddressPolicy::default() };
    let client = KeyClient::new(dns, addresses, sockets, setup.authorities.as_ref(), MS(500)).unwrap();
    let client = client.only_to(setup.hosts);
    let metrics = KeySetMetrics::register(&registry).unwrap();
    let follower = KeySetFollower::new(client, limits, sources, sender, metrics, 7).keeping(None, setup.known);
    tasks.spawn(follower.run(stop.clone()));
    Run { issuer, at, wanted, api_server, events, registry, stop, _tasks: tasks }
}

/// Answers every question for an IPv4 address with that of the issuer.
async fn name_server(socket: UdpSocket) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let query = Message::from_vec(&buffer[..length]).unwrap();
        let question = query.queries.first().unwrap().clone();
        let mut answer = Message::response(query.metadata.id, OpCode::Query);
        answer.add_query(question.clone());
        if question.query_type() == RecordType::A {
            answer.add_answer(Record::from_rdata(question.name().clone(), 60, RData::A(A(Ipv4Addr::LOCALHOST))));
        }
        socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
    }
}

async fn serve(listener: TcpListener, issuer: Arc<Mutex<Issuer>>, tls: Option<TlsAcceptor>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (issuer, tls) = (Arc::clone(&issuer), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => answer(stream, &issuer).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => answer(stream, &issuer).await,
                    Err(_untrusted) => {}
                },
            }
        });
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, issuer: &Mutex<Issuer>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let says = {
        let mut issuer = issuer.lock().await;
        *issuer.asked.entry(path.clone()).or_default() += 1;
        issuer.paths.get(&path).cloned()
    };
    match says {
        None => drop(stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await),
        Some(Says::Hang) => std::future::pending().await,
        Some(Says::Flood) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 1_u64 << 30);
            drop(stream.write_all(head.as_bytes()).await);
            while stream.write_all(&[b' '; 64 << 10]).await.is_ok() {}
        }
        Some(Says::Answer(head, body)) => {
            let length = body.len();
            drop(stream.write_all(format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n").as_bytes()).await);
            drop(stream.write_all(&body).await);
        }
    }
}

/// A key set with one key.
fn key_set(id: &str) -> String {
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": id, "x": x}]}).to_string()
}

fn json_answer(body: impl Into<Vec<u8>>) -> Says {
    Says::Answer("200 OK\r\ncontent-type: application/json".to_owned(), body.into())
}

fn read(text: &str) -> KeySet {
    KeySet::read(text.as_bytes()).unwrap()
}

impl Run {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    async fn says(&self, path: &str, says: Says) {
        self.issuer.lock().await.paths.insert(path.to_owned(), says);
    }

    async fn asked(&self, path: &str) -> usize {
        self.issuer.lock().await.asked.get(path).copied().unwrap_or_default()
    }

    fn want(&self, sources: &[KeySource]) {
        let wanted = sources.iter().map(|source| (source.clone(), BTreeSet::from(["shop".into()])));
        self.wanted.send_replace(Arc::new(wanted.collect()));
    }

    /// Wants the key set at a URL.
    fn want_url(&self, url: &str) {
        self.want(&[KeySource::Jwks(url.into())]);
    }

    /// The next event.
    async fn next(&mut self) -> Result<Arc<KeySet>, Arc<str>> {
        let event = tokio::time::timeout(DEADLINE, self.events.recv()).await.expect("an event in time");
        let Some(Event::KeySet { fetched, .. }) = event else { panic!("{event:?}") };
        fetched
    }

    /// The next event is a failure with this text in its reason.
    #[track_caller]
    fn fails(&mut self, why: &str) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let got = self.next().await.expect_err("a failure");
            assert!(got.contains(why), "{caller}: {got}");
            assert!(!got.contains("SECRET"), "{caller}: {got}");
        }
    }

    fn metric(&self, name: &str, outcome: Option<&str>) -> f64 {
        let families = self.registry.gather();
        let series = families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric());
        let is_meant = |labels: &[prometheus::proto::LabelPair]| outcome.is_none_or(|value| labels[0].value() == value);
        series
            .filter(|it| is_meant(it.get_label()))
            .map(|it| it.get_counter().get_value() + it.get_gauge().get_value())
            .sum()
    }
}

#[tokio::test]
async fn keys_are_fetched_by_url_and_by_issuer() {
    let mut run = start(Setup::default(), quick()).await;
    run.says("/keys", json_answer(key_set("a"))).await;
    run.want_url(&run.url("/keys"));
    assert_eq!(*run.next().await.unwrap(), read(&key_set("a")));

    let issuer = run.url("/realm/");
    let discovery = json!({"issuer": issuer, "jwks_uri": run.url("/other?keys=1")});
    run.says("/realm/.well-known/openid-configuration", json_answer(discovery.to_string())).await;
    run.says("/other?keys=1", Says::Answer("200 OK".to_owned(), key_set("b").into_bytes())).await;
    run.want(&[KeySource::Issuer(issuer.into())]);
    assert_eq!(*run.next().await.unwrap(), read(&key_set("b")));

    // By name, with the name server of the test.
    let port = run.at.port();
    run.want_url(&format!("http://issuer.example:{port}/keys"));
    assert_eq!(*run.next().await.unwrap(), read(&key_set("a")));
    assert!((run.metric("tidegate_key_set_fetches_total", Some("fetched")) - 3.0).abs() < 0.1);
    run.stop.cancel();
}

#[tokio::test]
async fn answers_are_checked() {
    let mut run = start(Setup::default(), quick()).await;
    let elsewhere = "http://192.0.2.1/keys";
    let answer = |head: &str, body: &str| Says::Answer(head.to_owned(), body.as_bytes().to_vec());
    let cases = [
        (answer("500 Oops", "SECRET"), "the status 500"),
        (answer(&format!("302 Found\r\nlocation: {elsewhere}"), "SECRET"), "redirects are not followed"),
        (answer("302 Found\r\nlocation: /keys-a", "SECRET"), "redirects are not followed"),
        (answer("200 OK\r\ncontent-type: text/html", &key_set("a")), "content type"),
        (answer("200 OK\r\ncontent-encoding: gzip", &key_set("a")), "compressed"),
        (answer("200 OK", "SECRET"), "no key set"),
        (answer("200 OK", r#"{"keys":[{"kty":"oct","k":"SECRET"}]}"#), "none of its keys"),
        (answer("no status", "SECRET"), "no valid answer"),
        (Says::Flood, "larger than 1048576 bytes"),
        (Says::Hang, "no complete answer within 500ms"),
    ];
    for (number, (says, why)) in cases.into_iter().enumerate() {
        let path = format!("/{number}");
        run.says(&path, says).await;
        run.want_url(&run.url(&path));
        run.fails(why).await;
    }
    run.want_url(&run.url("/nowhere"));
    run.fails("the status 404").await;
    for (url, why) in [
        ("ftp://192.0.2.1/", "neither http nor https"),
        ("http://user@192.0.2.1/", "a user before its host"),
        ("/keys", "neither http nor https"),
        ("http://a b/", "no URL"),
    ] {
        run.want_url(url);
        run.fails(why).await;
    }
    let issuer = run.url("/realm");
    let discovery = json!({"issuer": run.url("/other"), "jwks_uri": run.url("/keys")});
    run.says("/realm/.well-known/openid-configuration", json_answer(discovery.to_string())).await;
    run.want(&[KeySource::Issuer(issuer.into())]);
    run.fails("its issuer is another one").await;
    assert!((run.metric("tidegate_key_sets_missing", None) - 1.0).abs() < 0.1);
    assert!(run.metric("tidegate_key_set_fetches_total", Some("failed")) >= 16.0);
    run.stop.cancel();
}

#[tokio::test]
async fn addresses_are_refused_after_the_look_up() {
    let mut run = start(Setup { refuses_loopback: true, ..Setup::default() }, quick()).await;
    run.says("/keys", json_answer(key_set("a"))).await;
    let port = run.at.port();
    for host in ["127.0.0.1", "issuer.example", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0"] {
        run.want_url(&format!("http://{host}:{port}/keys"));
        run.fails("is not allowed").await;
    }
    assert_eq!(run.asked("/keys").await, 0);
    run.stop.cancel();

    let mut run = start(Setup::default(), quick()).await;
    run.says("/keys", json_answer(key_set("a"))).await;
    run.api_server.send_replace(Arc::new([run.at].into()));
    run.want_url(&run.url("/keys"));
    run.fails("it is the API server").await;
    assert_eq!(run.asked("/keys").await, 0);
    // A document of an issuer leads nowhere else either.
    let issuer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = issuer.local_addr().unwrap();
    let documents = Arc::new(Mutex::new(Issuer::default()));
    let discovery = json!({"issuer": format!("http://{at}"), "jwks_uri": run.url("/keys")});
    let path = "/.well-known/openid-configuration".to_owned();
    documents.lock().await.paths.insert(path, json_answer(discovery.to_string()));
    let serving = tokio::spawn(serve(issuer, documents, None));
    run.want(&[KeySource::Issuer(format!("http://{at}").into())]);
    run.fails("its key set: 127.0.0.1 is not allowed: it is the API server").await;
    assert_eq!(run.asked("/keys").await, 0);
    serving.abort();
    run.stop.cancel();
}

#[tokio::test]
async fn hosts_that_the_operator_does_not_allow_are_refused() {
    for (allowed, host, is_allowed) in [
        ("issuer.example", "issuer.example", true),
        ("issuer.example", "ISSUER.example.", true),
        ("issuer.example", "127.0.0.1", false),
        ("*.example", "other.test", false),
        ("127.0.0.0/8", "other.test", true),
        ("10.0.0.0/8", "issuer.example", false),
    ] {
        let hosts = UrlHosts::read(&[allowed.to_owned()]).unwrap();
        let mut run = start(Setup { hosts, ..Setup::default() }, quick()).await;
        run.says("/keys", json_answer(key_set("a"))).await;
        run.want_url(&format!("http://{host}:{}/keys", run.at.port()));
        if is_allowed {
            assert_eq!(*run.next().await.unwrap(), read(&key_set("a")), "{host} under {allowed}");
        } else {
            run.fails("the operator does not allow its host").await;
            assert_eq!(run.asked("/keys").await, 0, "{host} under {allowed}");
        }
        run.stop.cancel();
    }
}

#[tokio::test]
async fn the_last_keys_stay_while_an_issuer_is_away() {
    let mut run = start(Setup::default(), KeySetLimits { interval: MS(20), ..quick() }).await;
    run.says("/keys", json_answer(key_set("a"))).await;
    run.want_url(&run.url("/keys"));
    let first = run.next().await.unwrap();
    run.says("/keys", Says::Answer("503 Away".to_owned(), Vec::new())).await;
    run.fails("the status 503").await;
    run.says("/keys", json_answer(key_set("a"))).await;
    assert!(Arc::ptr_eq(&run.next().await.unwrap(), &first), "equal keys are the same value");
    run.says("/keys", json_answer(key_set("b"))).await;
    assert_eq!(*run.next().await.unwrap(), read(&key_set("b")));
    run.stop.cancel();
}

#[tokio::test]
async fn known_keys_are_told_again_and_need_no_issuer() {
    let known = Arc::new(read(&key_set("a")));
    let source = KeySource::Jwks("http://127.0.0.1:1/keys".into());
    let setup = Setup { known: [(source.clone(), Arc::clone(&known))].into(), ..Setup::default() };
    let mut run = start(setup, quick()).await;
    run.want(&[source]);
    assert!(Arc::ptr_eq(&run.next().await.unwrap(), &known));
    run.fails("127.0.0.1:1").await;
    run.stop.cancel();
}

#[tokio::test]
async fn a_thousand_tokens_with_unknown_keys_make_one_fetch() {
    let mut run = start(Setup::default(), KeySetLimits { unknown_key: MS(1), ..quick() }).await;
    run.says("/keys", json_answer(key_set("a"))).await;
    run.want_url(&run.url("/keys"));
    let keys = run.next().await.unwrap();
    run.says("/keys", json_answer(key_set("b"))).await;
    let source = KeySource::Jwks(run.url("/keys").into());
    let jwt = Jwt { source, issuer: None, keys: Some(Arc::clone(&keys)) };
    for id in 0..1_000 {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "EdDSA", "kid": id.to_string()}).to_string());
        let fault = jwt.verify(&format!("{header}.e30.e30"), UNIX_EPOCH).unwrap_err();
        assert_eq!(fault, TokenFault::UnknownKey);
        keys.note_unknown_key();
    }
    assert_eq!(*run.next().await.unwrap(), read(&key_set("b")));
    // Whatever was asked for before this is known when its keys arrive.
    run.says("/other", json_answer(key_set("c"))).await;
    run.want(&[KeySource::Jwks(run.url("/keys").into()), KeySource::Jwks(run.url("/other").into())]);
    assert_eq!(*run.next().await.unwrap(), read(&key_set("c")));
    assert_eq!(run.asked("/keys").await, 2);
    run.stop.cancel();
}

#[tokio::test]
async fn certificates_of_issuers_are_verified() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let issued = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let issued = issued.signed_by(&key, &rcgen::Issuer::new(params, ca_key)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = server.with_no_client_auth().with_single_cert(vec![issued.der().clone()], key).unwrap();
    let tls = TlsAcceptor::from(Arc::new(server));
    let authorities = CaBundle::from_pem(&[ca.pem().as_bytes()]).unwrap();
    for (authorities, is_trusted) in [(None, false), (Some(authorities), true)] {
        let mut run = start(Setup { tls: Some(tls.clone()), authorities, ..Setup::default() }, quick()).await;
        run.says("/keys", json_answer(key_set("a"))).await;
        run.want_url(&run.url("/keys").replace("http:", "https:"));
        if is_trusted {
            assert_eq!(*run.next().await.unwrap(), read(&key_set("a")));
        } else {
            run.fails("TLS: ").await;
        }
        run.stop.cancel();
    }
}

//! Mirrors that are spoken to over HTTP/2, TLS or both: real servers, which report what they get.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http::request::Parts;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_config::model::{AppProtocol, BackendKey, Filter, Mirror, Target, UpstreamTls, UpstreamVerification};
use tidegate_config::object::ObjectName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::bed::{Bed, Model, PATIENCE};
use super::external_auth::send;
use super::retries::WAYS;
use super::upstream::Upstream;

/// A request as a mirror got it, with its body and the server name of its connection.
struct Copied {
    head: Parts,
    body: Bytes,
    server_name: Option<String>,
}

impl Copied {
    fn header(&self, name: &str) -> &str {
        self.head.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A server for the target of a mirror.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: UnboundedReceiver<Copied>,
}

impl Server {
    async fn start(protocol: AppProtocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let acceptor = protocol.is_tls().then(|| acceptor(if protocol.is_http2() { b"h2" } else { b"http/1.1" }));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let (sender, acceptor, http2) = (sender.clone(), acceptor.clone(), protocol.is_http2());
                tokio::spawn(async move {
                    let Some(acceptor) = acceptor else { return serve(stream, http2, (None, sender)).await };
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let name = stream.get_ref().1.server_name().map(str::to_owned);
                    serve(stream, http2, (name, sender)).await;
                });
            }
        });
        Self { address, connections, seen }
    }

    async fn seen(&mut self) -> Copied {
        timeout(PATIENCE, self.seen.recv()).await.expect("no copy came").unwrap()
    }
}

fn acceptor(alpn: &[u8]) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    http2: bool,
    (server_name, sender): (Option<String>, UnboundedSender<Copied>),
) {
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let (sender, server_name) = (sender.clone(), server_name.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            sender.send(Copied { head, body, server_name }).ok();
            Ok::<_, hyper::Error>(http::Response::builder().status(500).body(Full::new(Bytes::from("no"))).unwrap())
        }
    });
    let stream = TokioIo::new(stream);
    if http2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await.ok();
    } else {
        hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await.ok();
    }
}

fn mirror(protocol: AppProtocol, tls: Option<UpstreamTls>) -> Filter {
    let backend = BackendKey::tcp(ObjectName::new("shop", "copy"), 80);
    let to = Arc::new(Target { backend, protocol, tls, fixed: None });
    Filter::Mirror(Mirror { to, numerator: 1, denominator: 1 })
}

async fn bed(endpoint: SocketAddr, mirror: Filter, copy: SocketAddr, driver: tidegate_proxy::Driver) -> Bed {
    let model = Model::edited(&[endpoint], |route| route.filters = [mirror].into()).backend("copy", &[copy]);
    Bed::with(model, |options| options.driver = driver).await
}

async fn until_counted(bed: &Bed, outcome: &str, count: u32) {
    bed.until_metric(&format!(r#"tidegate_mirrored_requests_total{{outcome="{outcome}"}} {count}"#)).await;
    bed.until_metric("tidegate_mirrored_requests_in_flight 0").await;
}

#[tokio::test]
async fn a_mirror_gets_the_request_in_its_protocol() {
    let mut upstream = Upstream::echo().await;
    for (protocol, name) in
        [(AppProtocol::H2c, None), (AppProtocol::H2, Some("a.test")), (AppProtocol::Https, Some("a.test"))]
    {
        for (driver, http2) in WAYS {
            let what = format!("{protocol:?}, {driver:?}, HTTP/2: {http2}");
            let mut copy = Server::start(protocol).await;
            let bed = bed(upstream.address, mirror(protocol, None), copy.address, driver).await;
            for (method, body, length) in [("GET", "", ""), ("POST", "abc", "3")] {
                let lines = [("x-own", "1"), ("cookie", "a=b")];
                assert_eq!(send(&bed, http2, (method, "/a?b=c"), &lines, (body, false)).await.status, 200, "{what}");
                let (original, seen) = (upstream.seen().await, copy.seen().await);
                let head = &seen.head;
                assert_eq!((head.method.as_str(), head.uri.path_and_query().unwrap().as_str()), (method, "/a?b=c"));
                let version = if protocol.is_http2() { http::Version::HTTP_2 } else { http::Version::HTTP_11 };
                assert_eq!((head.version, &*seen.body, seen.server_name.as_deref()), (version, body.as_bytes(), name));
                let host = head.uri.authority().map_or(seen.header("host"), |authority| authority.as_str());
                assert_eq!((host, seen.header("content-length")), ("a.test", length), "{what}");
                let scheme = if protocol.is_tls() { "https" } else { "http" };
                assert_eq!(head.uri.scheme_str(), protocol.is_http2().then_some(scheme), "{what}");
                for header in ["x-own", "cookie", "x-request-id", "x-forwarded-for", "cdn-loop"] {
                    assert_eq!(seen.header(header), original.header(header), "{what}: {header}");
                }
            }
            until_counted(&bed, "sent", 2).await;
            if protocol.is_http2() {
                assert_eq!(copy.connections.load(Relaxed), 1, "{what}: copies share a connection");
            }
        }
    }
}

#[tokio::test]
async fn a_mirror_of_a_grpc_request_gets_its_message() {
    let upstream = Upstream::echo().await;
    let message = "\0\0\0\0\u{3}abc";
    for (driver, http2) in WAYS {
        let mut copy = Server::start(AppProtocol::H2c).await;
        let bed = bed(upstream.address, mirror(AppProtocol::H2c, None), copy.address, driver).await;
        let lines = [("content-type", "application/grpc+proto"), ("te", "trailers"), ("grpc-timeout", "5S")];
        send(&bed, http2, ("POST", "/shop.Cart/Add"), &lines, (message, http2)).await;
        let seen = copy.seen().await;
        let got = ["content-type", "te", "grpc-timeout"].map(|name| seen.header(name));
        assert_eq!(got, ["application/grpc+proto", "trailers", "5S"], "{driver:?}, HTTP/2: {http2}");
        assert_eq!((seen.head.uri.path(), &*seen.body), ("/shop.Cart/Add", message.as_bytes()));
        until_counted(&bed, "sent", 1).await;
    }
}

#[tokio::test]
async fn a_mirror_that_takes_no_copy_counts_as_failed() {
    let upstream = Upstream::echo().await;
    let verification = Arc::new(UpstreamVerification { authorities: None, names: Box::default() });
    let verified = UpstreamTls { verification: Some(verification), ..UpstreamTls::default() };
    let resetting = Upstream::resetting().await;
    for (driver, http2) in WAYS {
        for protocol in [AppProtocol::H2, AppProtocol::Https] {
            let mut copy = Server::start(protocol).await;
            // The system's authorities did not sign the certificate.
            for (tls, address) in [(Some(verified.clone()), copy.address), (None, resetting)] {
                let bed = bed(upstream.address, mirror(protocol, tls), address, driver).await;
                assert_eq!(send(&bed, http2, ("GET", "/"), &[], ("", false)).await.status, 200);
                until_counted(&bed, "failed", 1).await;
            }
            assert!(copy.seen.try_recv().is_err(), "{protocol:?}, {driver:?}, HTTP/2: {http2}");
        }
    }
}

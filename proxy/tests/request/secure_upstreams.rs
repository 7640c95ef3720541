//! Endpoints behind TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::model::{Action, AppProtocol, Target, UpstreamTls, UpstreamVerification, WeightedTarget};
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::bed::{Bed, Model, route};

/// A TLS acceptor with a self-signed certificate.
pub fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// A server that answers with the requested server name.
async fn self_signed() -> SocketAddr {
    let acceptor = acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let name = stream.get_ref().1.server_name().unwrap_or("nobody").to_owned();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {}
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

pub fn model(address: SocketAddr, tls: Option<UpstreamTls>) -> Model {
    let mut route = route("web", AppProtocol::Https);
    if let Action::Forward(targets) = &route.action {
        let target = Target { tls, ..Target::clone(targets[0].target().unwrap()) };
        route.action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
    }
    Model::default().route("a.test", route).backend("web", &[address])
}

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

#[tokio::test]
async fn an_endpoint_certificate_is_verified_only_if_configured() {
    let upstream = self_signed().await;
    let named = UpstreamTls { server_name: Some("b.test".into()), ..UpstreamTls::default() };
    let verification = Arc::new(UpstreamVerification { authorities: None, names: Box::default() });
    let checked = UpstreamTls { verification: Some(verification), ..UpstreamTls::default() };
    for driver in DRIVERS {
        let start = |tls| Bed::with(model(upstream, tls), |options| options.driver = driver);
        let bed = start(None).await;
        let answer = bed.get("a.test", "/", "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "a.test"));
        let carried = if driver == Driver::Both { "native" } else { "pingora" };
        bed.until_metric(&format!(r#"tidegate_requests_by_driver_total{{driver="{carried}"}} 1"#)).await;
        let answer = start(Some(named.clone())).await.get("a.test", "/", "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "b.test"));
        let answer = start(Some(checked.clone())).await.get("a.test", "/", "").await;
        assert_eq!((answer.status, answer.body.contains("connect-failed")), (502, true));
    }
}

#[tokio::test]
async fn plain_text_instead_of_tls_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    for driver in DRIVERS {
        let bed = Bed::with(model(address, None), |options| options.driver = driver).await;
        let answer = bed.get("a.test", "/", "").await;
        assert_eq!((answer.status, answer.body.contains("connect-failed")), (502, true));
    }
}

/// An endpoint behind TLS that answers only some paths.
async fn fickle() -> SocketAddr {
    let acceptor = acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|count| count > 0) {}
                let part = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
                if head.starts_with(b"GET /whole ") {
                    stream.write_all(format!("{part}world").as_bytes()).await.unwrap();
                } else if !head.starts_with(b"GET /broken ") {
                    if head.starts_with(b"GET /half ") {
                        stream.write_all(part.as_bytes()).await.unwrap();
                    }
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

/// Requests to endpoints behind TLS are in flight until they end, however they do.
#[tokio::test]
async fn requests_to_secure_endpoints_are_counted_in_flight() {
    let endpoint = fickle().await;
    for driver in DRIVERS {
        let bed = Bed::with(model(endpoint, None), |options| options.driver = driver).await;
        for (path, status) in [("/whole", 200), ("/broken", 502)] {
            assert_eq!(bed.get("a.test", path, "").await.status, status, "{driver:?} {path}");
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
        // Clients that disconnect before the response and during it.
        for (count, path) in ["/silent", "/half"].into_iter().enumerate() {
            let mut stream = bed.connect().await;
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes()).await.unwrap();
            bed.until_metric("tidegate_requests_in_flight 1").await;
            if path == "/half" {
                let mut got = Vec::new();
                while !got.ends_with(b"hello") {
                    assert_ne!(stream.read_buf(&mut got).await.unwrap(), 0, "{driver:?}");
                }
            }
            drop(stream);
            bed.until_metric("tidegate_requests_in_flight 0").await;
            bed.until_metric(&format!(r#"tidegate_requests_by_reason_total{{reason="client-gone"}} {}"#, count + 1))
                .await;
        }
    }
}

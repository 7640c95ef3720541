//! Endpoints behind TLS, and the address that must never be one.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::model::{Action, AppProtocol, Target, UpstreamTls, UpstreamVerification, WeightedTarget};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::bed::{Bed, Model, route};

/// A server with a certificate of its own making that answers with the name it was asked for.
async fn self_signed() -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
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

fn model(address: SocketAddr, tls: Option<UpstreamTls>) -> Model {
    let mut route = route("web", AppProtocol::Https);
    if let Action::Forward(targets) = &route.action {
        let target = Target { tls, ..Target::clone(targets[0].target().unwrap()) };
        route.action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
    }
    Model::default().route("a.test", route).backend("web", &[address])
}

#[tokio::test]
async fn a_certificate_is_checked_only_where_somebody_says_by_whom() {
    let upstream = self_signed().await;
    let answer = Bed::start(model(upstream, None)).await.get("a.test", "/", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "a.test"));
    let named = UpstreamTls { server_name: Some("b.test".into()), verification: None, client: None };
    let answer = Bed::start(model(upstream, Some(named))).await.get("a.test", "/", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "b.test"));
    let checked = UpstreamTls {
        server_name: None,
        verification: Some(Arc::new(UpstreamVerification { authorities: None, names: Box::default() })),
        client: None,
    };
    let answer = Bed::start(model(upstream, Some(checked))).await.get("a.test", "/", "").await;
    assert_eq!((answer.status, answer.body.contains("connect-failed")), (502, true));
}

#[tokio::test]
async fn plain_text_where_tls_is_expected_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    let answer = Bed::start(model(address, None)).await.get("a.test", "/", "").await;
    assert_eq!((answer.status, answer.body.contains("connect-failed")), (502, true));
}

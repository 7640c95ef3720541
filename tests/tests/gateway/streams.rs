//! TLSRoutes and TCPRoutes: connections by server name, with TLS termination and passthrough, and whole ports.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_tests::{certificate_of, connect_tls, eventually, get, secret};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{ACCEPTED, Bench, RESOLVED};

const LISTENERS: &str = r#"{"spec":{"listeners":[
    {"name":"http","port":8080,"protocol":"HTTP"},
    {"name":"end","port":8443,"protocol":"TLS","hostname":"*.end.localhost","tls":{"mode":"Terminate","certificateRefs":[{"name":"end"}]}},
    {"name":"pass","port":8443,"protocol":"TLS","hostname":"*.pass.localhost","tls":{"mode":"Passthrough"}},
    {"name":"tcp","port":9000,"protocol":"TCP"}]}}"#;

/// Sends a name, and then the client's bytes in capitals once the client has finished.
async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, name: &str) {
    stream.write_all(name.as_bytes()).await.ok();
    let mut said = Vec::new();
    if stream.read_to_end(&mut said).await.is_ok() {
        stream.write_all(&said.to_ascii_uppercase()).await.ok();
        stream.shutdown().await.ok();
    }
}

/// A server of plain bytes, or with TLS, and its Service.
async fn server(name: &'static str, tls: Option<TlsAcceptor>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                match tls {
                    None => talk(stream, name).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            talk(stream, name).await;
                        }
                    }
                }
            });
        }
    });
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: {name}}}\n\
         spec: {{ports: [{{name: bytes, port: 7000}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{name: bytes, port: {port}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n---\n"
    )
}

/// TLS with a certificate for a name, and the certificate.
fn tls(name: &str) -> (TlsAcceptor, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.der().clone())
}

fn route(kind: &str, name: &str, section: &str, rest: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{namespace: shop, name: {name}}}\nspec:\n  \
         parentRefs: [{{name: edge, sectionName: {section}}}]\n{rest}---\n"
    )
}

/// The first bytes of a connection; empty for one that is closed.
async fn greeting(stream: &mut (impl AsyncRead + Unpin), length: usize) -> Result<String, String> {
    let mut said = vec![0; length];
    stream.read_exact(&mut said).await.map_err(|error| error.to_string())?;
    String::from_utf8(said).map_err(|error| error.to_string())
}

/// Waits until new connections begin with a name, and returns one of them.
async fn greeted(address: SocketAddr, name: &str) -> TcpStream {
    eventually(&format!("{name} at {address}"), || async move {
        let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let said = greeting(&mut stream, name.len()).await?;
        if said == name { Ok(stream) } else { Err(said) }
    })
    .await
}

/// Sends bytes and ends its direction; returns everything received until the end.
async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_forwarded_by_server_name_and_by_port() {
    let Some(bench) = Bench::start(5).await else { return };
    let (end, end_certificate) = secret("shop", "end", "a.end.localhost");
    let (acceptor, own_certificate) = tls("a.pass.localhost");
    let mut objects = format!("{end}---\n");
    for (name, tls) in [("one", None), ("two", None), ("own", Some(acceptor))] {
        objects += &server(name, tls).await;
    }
    objects += &route("TCPRoute", "bytes", "tcp", "  rules: [{backendRefs: [{name: one, port: 7000}]}]\n");
    let [end, pass] = [("end", "one"), ("pass", "own")].map(|(name, to)| {
        let hosts =
            format!("  hostnames: [a.{name}.localhost]\n  rules: [{{backendRefs: [{{name: {to}, port: 7000}}]}}]\n");
        route("TLSRoute", name, name, &hosts)
    });
    bench.patch("gateway/edge", LISTENERS).await;
    bench.apply(&format!("{objects}{end}{pass}")).await;

    // Bytes are unchanged, and an end in one direction leaves the other one open.
    let (tcp, over_tls) = (bench.door(0, 9000), bench.door(0, 8443));
    assert_eq!(say(greeted(tcp, "one").await, "hello").await, "HELLO");
    // By server name, with the listener's certificate and with the endpoint's.
    for (host, name, certificate) in
        [("a.end.localhost", "one", &end_certificate), ("a.pass.localhost", "own", &own_certificate)]
    {
        let mut stream = eventually(host, || connect_tls(over_tls, host, &[])).await;
        assert_eq!(greeting(&mut stream, 3).await.unwrap(), name, "{host}");
        assert_eq!(say(stream, host).await, host.to_uppercase());
        assert_eq!(certificate_of(over_tls, host).await.unwrap(), *certificate, "{host}");
    }
    let metrics = get(bench.dev.admin, "localhost", "/metrics").await.unwrap().body;
    let ends = metrics.lines().find_map(|line| {
        line.strip_prefix(r#"tidegate_certificate_not_after_seconds{secret="shop/end"} "#)?.parse::<f64>().ok()
    });
    // The certificates of the tests are valid until the end of 4095.
    assert_eq!(ends, Some(67_090_118_400.0), "{metrics}");
    for host in ["b.end.localhost", "b.pass.localhost", "shop.localhost"] {
        let refused = connect_tls(over_tls, host, &[]).await;
        assert!(refused.as_ref().is_err_and(|error| error.contains("eof")), "{host}: {refused:?}");
    }
    bench.said("gateway/edge", "{.status.listeners[*].attachedRoutes}", "1 1 1 1").await;
    for object in ["tcproute/bytes", "tlsroute/end", "tlsroute/pass"] {
        bench.said(object, ACCEPTED, "Accepted").await;
        bench.said(object, RESOLVED, "ResolvedRefs").await;
    }

    // The route changes its target, and existing connections stay where they are.
    let before = greeted(tcp, "one").await;
    let lead = async |backends: &str| {
        bench.patch("tcproute/bytes", &format!(r#"{{"spec":{{"rules":[{{"backendRefs":{backends}}}]}}}}"#)).await;
    };
    lead(r#"[{"name":"two","port":7000}]"#).await;
    greeted(tcp, "two").await;
    assert_eq!(say(before, "late").await, "LATE");

    // Connections of a missing backend's share are closed, and no others.
    lead(r#"[{"name":"two","port":7000},{"name":"none","port":7000}]"#).await;
    bench.said("tcproute/bytes", RESOLVED, "BackendNotFound").await;
    let mut served = 0;
    for _ in 0..64 {
        let mut stream = TcpStream::connect(tcp).await.unwrap();
        served += usize::from(greeting(&mut stream, 3).await.is_ok_and(|said| said == "two"));
    }
    // The probability that one of two equal shares has fewer than 10 of 64 is 1 in 10 to the 8th.
    assert!((10..=54).contains(&served), "{served}");

    // A younger route is accepted, and gets no connections while the older one exists.
    bench.apply(&route("TCPRoute", "younger", "tcp", "  rules: [{backendRefs: [{name: one, port: 7000}]}]\n")).await;
    bench.said("tcproute/younger", ACCEPTED, "Accepted").await;
    bench.said("gateway/edge", "{.status.listeners[?(@.name=='tcp')].attachedRoutes}", "2").await;
    lead(r#"[{"name":"two","port":7000}]"#).await;
    greeted(tcp, "two").await;
    bench.kubectl.run(&["delete", "-n", "shop", "tcproute", "bytes"]).await;
    greeted(tcp, "one").await;
}

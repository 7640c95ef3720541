//! The protocols of real clients: HTTP/1.1, HTTP/2 by ALPN and by prior knowledge, WebSocket, and TLS with the
//! certificates of Secrets.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use futures::{SinkExt, StreamExt};
use http::Version;
use rustls_pki_types::CertificateDer;
use tidegate_tests::{Dev, Kubectl, certificate_of, eventually, get, h2c, https};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const SHOP: &str = include_str!("manifests/shop.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn one_port_speaks_http_1_1_and_http_2() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    eventually("plain HTTP/1.1", || async { ok(get(dev.http, "shop.test", "/").await?, Version::HTTP_11) }).await;
    eventually("HTTP/2 by prior knowledge", || async { ok(h2c(dev.http, "shop.test", "/").await?, Version::HTTP_2) })
        .await;
    eventually("HTTP/2 by ALPN", || async { ok(https(dev.https, "shop.test", "/", true).await?, Version::HTTP_2) })
        .await;
    eventually("HTTP/1.1 over TLS", || async {
        ok(https(dev.https, "shop.test", "/", false).await?, Version::HTTP_11)
    })
    .await;
}

fn ok(answer: tidegate_tests::Answer, version: Version) -> Result<(), String> {
    if answer.status == 200 && answer.version == version { Ok(()) } else { Err(format!("{answer:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_answers_have_a_request_id() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let unknown = eventually("a 404", || get(dev.http, "nobody.test", "/")).await;
    assert_eq!(unknown.status, 404);
    let id = unknown.headers.get("x-request-id").expect("a request id").to_str().unwrap();
    assert!(unknown.body.contains(id), "{}", unknown.body);
    assert!(unknown.headers.get("server").is_none_or(|server| !server.as_bytes().starts_with(b"Pingora")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_survives_changes_of_its_own_route() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    eventually("the route", || async { ok(get(dev.http, "shop.test", "/").await?, Version::HTTP_11) }).await;
    let stream = tokio::net::TcpStream::connect(dev.http).await.unwrap();
    let request = "ws://shop.test/chat".into_client_request().unwrap();
    let (mut socket, answer) = tokio_tungstenite::client_async(request, stream).await.expect("an upgrade");
    assert_eq!(answer.status(), 101);
    let mut say = async |text: &str| {
        socket.send(Message::text(text)).await.unwrap();
        let back = socket.next().await.expect("an answer").unwrap();
        assert_eq!(back.into_text().unwrap().as_str(), text);
    };
    say("before").await;
    std::fs::write(dev.folder().join("shop.yaml"), SHOP.replace("shop.test", "moved.test")).unwrap();
    eventually("the route has moved", || async { ok(get(dev.http, "moved.test", "/").await?, Version::HTTP_11) }).await;
    say("after").await;
}

struct Made {
    der: CertificateDer<'static>,
    secret: String,
}

/// A self-signed certificate as a Secret of the namespace `shop`.
fn certificate(secret: &str, name: &str) -> Made {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let indent = |pem: String| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let (chain, key) = (indent(made.cert.pem()), indent(made.signing_key.serialize_pem()));
    let head = format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{namespace: shop, name: {secret}}}\n"
    );
    Made {
        der: made.cert.der().clone(),
        secret: format!("{head}stringData:\n  tls.crt: |\n{chain}  tls.key: |\n{key}"),
    }
}

async fn shows(dev: &Dev, name: &str, want: &CertificateDer<'static>) {
    eventually(&format!("the certificate of {name}"), || async {
        let shown = certificate_of(dev.https, name).await?;
        if shown == *want { Ok(()) } else { Err("another certificate".to_owned()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_come_from_secrets_and_rotate() {
    let tls = "  tls:\n  - {hosts: [shop.test], secretName: exact}\n  - {hosts: [\"*.wild.test\"], secretName: wild}\n";
    // A certificate is presented only for names that match a rule.
    let rules = "  rules:\n  - host: \"*.wild.test\"\n";
    let text = SHOP.replace("  rules:\n", &format!("{tls}{rules}"));
    let dev = Dev::start(&[("shop.yaml", &text)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let fallback =
        eventually("a handshake without any certificate of ours", || certificate_of(dev.https, "shop.test")).await;

    let (exact, wild) = (certificate("exact", "shop.test"), certificate("wild", "*.wild.test"));
    kubectl.fed(&["apply", "-f", "-"], &exact.secret).await;
    kubectl.fed(&["apply", "-f", "-"], &wild.secret).await;
    shows(&dev, "shop.test", &exact.der).await;
    shows(&dev, "a.wild.test", &wild.der).await;
    shows(&dev, "a.b.wild.test", &fallback).await;

    let rotated = certificate("exact", "shop.test");
    kubectl.fed(&["apply", "-f", "-"], &rotated.secret).await;
    shows(&dev, "shop.test", &rotated.der).await;

    let elsewhere = certificate("exact", "else.test");
    kubectl.fed(&["apply", "-f", "-"], &elsewhere.secret).await;
    shows(&dev, "shop.test", &fallback).await;
    let findings = get(dev.debug, &dev.debug.to_string(), "/debug/findings").await.unwrap();
    assert!(findings.body.contains("CertificateNotForHost"), "{}", findings.body);
    kubectl.run(&["-n", "shop", "delete", "secret", "exact"]).await;
    shows(&dev, "shop.test", &fallback).await;
}

/// curl sends a PROXY header of version 1 before TLS and before plain HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn curl_speaks_the_proxy_protocol() {
    let dev = Dev::with(&[("shop.yaml", SHOP)], &["--proxy-protocol", "--trusted-proxies", "127.0.0.0/8"]).await;
    let curl = async |address: std::net::SocketAddr, scheme: &str, more: &[&str]| {
        let to = format!("shop.test:{}:127.0.0.1", address.port());
        let url = format!("{scheme}://shop.test:{}/", address.port());
        let mut command = tokio::process::Command::new("curl");
        command.args([
            "--disable",
            "--noproxy",
            "*",
            "--silent",
            "--insecure",
            "--max-time",
            "20",
            "--write-out",
            "\n%{http_code}",
            "--resolve",
            &to,
        ]);
        let output = command.args(more).arg(url).output().await.expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (address, scheme) in [(dev.http, "http"), (dev.https, "https")] {
        eventually("an answer", || async {
            let said = curl(address, scheme, &["--haproxy-protocol"]).await;
            if said.ends_with("\n200") { Ok(()) } else { Err(said) }
        })
        .await;
        assert_eq!(curl(address, scheme, &[]).await, "\n000", "{scheme}: without a header");
    }
    let failures = get(dev.admin, "localhost", "/metrics").await.unwrap().body;
    let missing = r#"tidegate_proxy_header_failures_total{reason="missing"} 2"#;
    assert!(failures.contains(missing), "{failures}");
}

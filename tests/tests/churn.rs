//! Changes do not affect traffic in flight: 200 route changes per second on other hosts, during requests and a
//! WebSocket.
//!
//! `CHURN_SECONDS=30` runs it for that long; the default is a few seconds.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_tests::{Dev, Kubectl, eventually, get, moment};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const SHOP: &str = include_str!("manifests/shop.yaml");
const CHANGES_A_SECOND: u64 = 200;
const HOSTS: u64 = 50;

#[allow(clippy::disallowed_methods, reason = "how long it runs comes from the environment")]
fn seconds() -> u64 {
    std::env::var("CHURN_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

fn ingress(number: u64, service: &str) -> String {
    let backend = format!(r#"{{"service": {{"name": "{service}", "port": {{"number": 80}}}}}}"#);
    let paths = format!(r#"[{{"path": "/", "pathType": "Prefix", "backend": {backend}}}]"#);
    format!(
        r#"{{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {{"namespace": "shop", "name": "other-{number}"}},
            "spec": {{"ingressClassName": "tidegate", "rules": [{{"host": "other-{number}.test", "http": {{"paths": {paths}}}}}]}}}}"#
    )
}

/// Sends requests on one connection until told to stop; returns the number of successes, and the failures.
async fn load(dev: std::net::SocketAddr, until: std::time::Instant) -> Result<u64, String> {
    let stream = tokio::net::TcpStream::connect(dev).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let mut answered = 0;
    while moment() < until {
        let request = Request::get("/").header("host", "shop.test").body(Full::<Bytes>::default()).unwrap();
        sender.ready().await.map_err(|error| format!("after {answered}: {error}"))?;
        let answer = sender.send_request(request).await.map_err(|error| format!("after {answered}: {error}"))?;
        let status = answer.status();
        answer.into_body().collect().await.map_err(|error| format!("after {answered}: {error}"))?;
        if status != 200 {
            return Err(format!("after {answered}: {status}"));
        }
        answered += 1;
    }
    Ok(answered)
}

/// Changes other hosts' routes back and forth through the API server on the network.
async fn churn(kubectl: &Kubectl, until: std::time::Instant) -> u64 {
    // One proxy process keeps its connection; a kubectl process for each change would be the bottleneck.
    let mut proxy = kubectl.command();
    proxy.args(["proxy", "--port=0"]).stdout(std::process::Stdio::piped());
    let mut child = proxy.spawn().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let line = lines.next_line().await.unwrap().expect("where it serves");
    let address: std::net::SocketAddr = line.rsplit(' ').next().unwrap().parse().unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut send = async |method: &str, path: &str, body: String| {
        let path = format!("/apis/networking.k8s.io/v1/namespaces/shop/ingresses{path}");
        let request = Request::builder().method(method).uri(path).header("host", address.to_string());
        let request = request.header("content-type", "application/json").body(Full::<Bytes>::from(body)).unwrap();
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{status} {}", String::from_utf8_lossy(&body));
    };
    for number in 0..HOSTS {
        send("POST", "", ingress(number, "web")).await;
    }
    let mut pace = tokio::time::interval(Duration::from_micros(1_000_000 / CHANGES_A_SECOND));
    let mut changes = 0;
    while moment() < until {
        pace.tick().await;
        let service = if (changes / HOSTS).is_multiple_of(2) { "cart" } else { "web" };
        send("PUT", &format!("/other-{}", changes % HOSTS), ingress(changes % HOSTS, service)).await;
        changes += 1;
    }
    child.kill().await.unwrap();
    changes
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_survive_route_changes() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    eventually("the route", || async {
        let answer = get(dev.http, "shop.test", "/").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
    let stream = tokio::net::TcpStream::connect(dev.http).await.unwrap();
    let request = "ws://shop.test/chat".into_client_request().unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("an upgrade");

    let until = moment() + Duration::from_secs(seconds());
    let mut loads: JoinSet<_> = (0..4).map(|_| load(dev.http, until)).collect();
    let changes = churn(&kubectl, until).await;
    let mut answered = 0;
    while let Some(load) = loads.join_next().await {
        answered += load.unwrap().expect("no request fails");
    }
    socket.send(Message::text("still here")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap().as_str(), "still here");
    println!("{answered} requests and a WebSocket went on through {changes} changes in {} s", seconds());
    // The pace is a target; a machine that is busy with other things gets room for a tenth of it.
    assert!(changes >= CHANGES_A_SECOND * seconds() / 10, "only {changes} changes");
    assert!(answered >= changes, "only {answered} requests went on beside {changes} changes");
}

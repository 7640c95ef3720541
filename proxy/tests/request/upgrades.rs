//! Upgraded connections: WebSocket and other listed tokens, without a limit on their duration.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tidegate_config::model::{Guard, Settings};
use tidegate_proxy::Driver;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::bed::{Bed, Model, PATIENCE, answer};
use super::secure_upstreams::{acceptor, model};
use super::upstream::Upstream;

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

/// Sends every message back.
async fn echo(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// A WebSocket server that sends every message back.
pub async fn websocket_echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(echo(stream));
        }
    });
    address
}

/// The same over TLS.
async fn secure_websocket_echo() -> std::net::SocketAddr {
    let acceptor = acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(echo(acceptor.accept(stream).await.unwrap()));
        }
    });
    address
}

#[tokio::test]
async fn request_timeouts_do_not_end_a_websocket() {
    let moment = Duration::from_millis(200);
    let settings = Settings { read_timeout: Some(moment), write_timeout: Some(moment), ..Settings::default() };
    let settings = Arc::new(settings);
    let upstream = websocket_echo().await;
    for driver in DRIVERS {
        let model = Model::edited(&[upstream], |route| route.settings = Arc::clone(&settings));
        outlives(model, driver, moment).await;
    }
}

async fn outlives(model: Model, driver: Driver, moment: Duration) {
    let bed = Bed::with(model, |options| {
        options.client.body_read_stall = moment;
        options.driver = driver;
    })
    .await;
    let stream = bed.connect().await;
    let (mut socket, _) = tokio_tungstenite::client_async("ws://a.test/chat", stream).await.unwrap();
    for text in ["one", "two"] {
        socket.send(Message::text(text)).await.unwrap();
        let back = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(back, Message::text(text));
        // The silence under test: several times the timeouts of requests.
        tokio::time::sleep(3 * moment).await;
    }
    socket.close(None).await.unwrap();
    while timeout(PATIENCE, socket.next()).await.unwrap().is_some_and(|message| message.is_ok()) {}
    bed.until_metric(r#"tidegate_requests_total{class="1xx",kind="Ingress",name="web",namespace="shop",object="Ingress shop/web"} 1"#).await;
    let carried = if driver == Driver::Both { "native" } else { "pingora" };
    bed.until_metric(&format!(r#"tidegate_requests_by_driver_total{{driver="{carried}"}} 1"#)).await;
    bed.until_metric("tidegate_requests_in_flight 0").await;
}

#[tokio::test]
async fn a_websocket_may_use_an_https_endpoint() {
    let upstream = secure_websocket_echo().await;
    for driver in DRIVERS {
        outlives(model(upstream, None), driver, Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_idle_tunnel_ends_after_its_own_timeout() {
    let upstream = websocket_echo().await;
    let settings = Settings { tunnel_idle_timeout: Some(Duration::from_millis(300)), ..Settings::default() };
    let settings = Arc::new(settings);
    for driver in DRIVERS {
        let model = Model::edited(&[upstream], |route| route.settings = Arc::clone(&settings));
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let (mut socket, _) = tokio_tungstenite::client_async("ws://a.test/", bed.connect().await).await.unwrap();
        let end = timeout(PATIENCE, socket.next()).await.expect("the tunnel stays open");
        assert!(end.is_none_or(|message| message.is_err()));
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="tunnel-idle"} 1"#).await;
    }
}

/// The bytes after an upgrade request may belong to the other protocol, regardless of the response.
#[tokio::test]
async fn bytes_after_a_refused_upgrade_are_not_read_as_a_request() {
    let upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let model = Model::edited(&[upstream.address], |route| route.guards = [Guard::DenyAll].into());
        let bed = Bed::with(model, |options| options.driver = driver).await;
        for (host, status) in [("a.test", "403"), ("other.test", "404")] {
            for (upgrade, answers) in [("Connection: upgrade\r\nUpgrade: websocket\r\n", 1), ("", 2)] {
                let mut stream = bed.connect().await;
                let last = format!("GET /2 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                let asked = format!("GET /1 HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n{last}");
                stream.write_all(asked.as_bytes()).await.unwrap();
                let mut got = Vec::new();
                timeout(PATIENCE, stream.read_to_end(&mut got)).await.expect("it stays open").unwrap();
                let got = String::from_utf8(got).unwrap();
                let what = format!("{driver:?}, {host}, {upgrade:?}: {got}");
                assert_eq!(got.matches(&format!("HTTP/1.1 {status} ")).count(), answers, "{what}");
                assert_eq!(got.to_lowercase().matches("connection: close").count(), 1, "{what}");
            }
        }
    }
}

/// A request without an upgrade that the edge could forward is a request like every other (RFC 9110 section 7.8).
#[tokio::test]
async fn a_request_after_one_whose_upgrade_is_ignored_is_answered() {
    let mut upstream = Upstream::echo().await;
    let guards: [Arc<[Guard]>; 2] = [[].into(), [Guard::DenyAll].into()];
    for (driver, guards) in DRIVERS.into_iter().flat_map(|driver| guards.clone().map(|guards| (driver, guards))) {
        let forwards = guards.is_empty();
        let model = Model::edited(&[upstream.address], |route| route.guards = Arc::clone(&guards));
        let bed = Bed::with(model, |options| options.driver = driver).await;
        for upgrade in [
            "Upgrade: websocket\r\n",
            "Upgrade: websocket\r\nConnection: keep-alive\r\n",
            "Upgrade: websocket\r\nConnection: te, x-upgrade\r\nTE: trailers\r\n",
            "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
            "Upgrade: h2c, websocket\r\nConnection: Upgrade\r\n",
            "Upgrade:\r\nConnection: Upgrade\r\n",
            "Upgrade: h2c\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        ] {
            let mut stream = bed.connect().await;
            let last = "GET /2 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
            let asked = format!("GET /1 HTTP/1.1\r\nHost: a.test\r\n{upgrade}\r\n{last}");
            stream.write_all(asked.as_bytes()).await.unwrap();
            let mut got = Vec::new();
            timeout(PATIENCE, stream.read_to_end(&mut got)).await.expect("it stays open").unwrap();
            let got = String::from_utf8(got).unwrap();
            let status = if forwards { "200" } else { "403" };
            assert_eq!(got.matches(&format!("HTTP/1.1 {status} ")).count(), 2, "{driver:?}, {upgrade:?}: {got}");
            for line in ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1"].into_iter().filter(|_| forwards) {
                let seen = upstream.seen().await;
                assert_eq!((seen.line.as_str(), seen.header("upgrade")), (line, String::new()), "{driver:?}");
            }
        }
    }
}

/// A server that accepts any upgrade, reports the request, and then echoes every byte.
async fn agreeable() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        let asked = String::from_utf8(head).unwrap().to_lowercase();
        let upgrade = asked.lines().find_map(|line| line.strip_prefix("upgrade: ")).unwrap_or("nothing").to_owned();
        let agreed = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n");
        stream.write_all(agreed.as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.ok();
    });
    address
}

const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: tide/1\r\n\r\n";

/// An edge that forwards upgrades with that token.
async fn tide(endpoint: std::net::SocketAddr, driver: Driver) -> Bed {
    Bed::with(Model::to(&[endpoint]), |options| {
        options.upgrade_tokens.push("tide/1".into());
        options.driver = driver;
    })
    .await
}

#[tokio::test]
async fn a_listed_upgrade_token_is_forwarded() {
    for driver in DRIVERS {
        let bed = tide(agreeable().await, driver).await;
        let mut stream = bed.connect().await;
        stream.write_all(ASK).await.unwrap();
        let agreed = answer(&mut stream).await;
        assert_eq!((agreed.status, agreed.header("upgrade")), (101, Some("tide/1")));
        stream.write_all(b"GET /not-http HTTP/1.1\r\n\r\n").await.unwrap();
        let mut back = [0; 26];
        timeout(PATIENCE, stream.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(&back, b"GET /not-http HTTP/1.1\r\n\r\n");
    }
}

/// Bytes after the head belong to the other protocol if the endpoint accepts it.
#[tokio::test]
async fn a_client_need_not_wait_for_its_upgrade() {
    for driver in DRIVERS {
        let bed = tide(agreeable().await, driver).await;
        let mut stream = bed.connect().await;
        stream.write_all(&[ASK, b"GET /eager HTTP/1.1\r\n\r\n"].concat()).await.unwrap();
        assert_eq!(answer(&mut stream).await.status, 101, "{driver:?}");
        stream.write_all(b"later").await.unwrap();
        let mut back = [0; 28];
        timeout(PATIENCE, stream.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(&back, b"GET /eager HTTP/1.1\r\n\r\nlater", "{driver:?}");
    }
}

/// A server that sends its first bytes with its 101, and its last ones after the client has finished.
async fn talkative() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        let count = stream.read(&mut head).await.unwrap();
        assert!(head[..count].ends_with(b"\r\n\r\n"), "nothing of the tunnel comes before it is agreed on");
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tide/1\r\n\r\nfirst, ";
        stream.write_all(agreed).await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
        stream.write_all(b", last").await.unwrap();
    });
    address
}

#[tokio::test]
async fn a_half_closed_tunnel_stays_open() {
    let bed = tide(talkative().await, Driver::Both).await;
    let mut stream = bed.connect().await;
    // An eager client is not wrong: bytes after the head belong to the other protocol if the endpoint accepts it.
    stream.write_all(&[ASK, b"eager"].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap().unwrap();
    let all = String::from_utf8(all).unwrap();
    assert!(all.starts_with("HTTP/1.1 101 ") && all.ends_with("\r\n\r\nfirst, eager, last"), "{all}");
    bed.until_metric("tidegate_requests_in_flight 0").await;
}

#[tokio::test]
async fn an_unrequested_101_opens_no_tunnel() {
    for driver in DRIVERS {
        // The token is not listed, so it is not forwarded; an endpoint that sends 101 nevertheless opens no tunnel.
        let bed = Bed::with(Model::to(&[agreeable().await]), |options| options.driver = driver).await;
        let mut stream = bed.connect().await;
        stream.write_all(ASK).await.unwrap();
        assert_eq!(answer(&mut stream).await.status, 502);
        // The same for a WebSocket when the list is empty.
        let bed = Bed::with(Model::to(&[agreeable().await]), |options| {
            options.upgrade_tokens.clear();
            options.driver = driver;
        });
        let bed = bed.await;
        let mut stream = bed.connect().await;
        let ask = String::from_utf8_lossy(ASK).replace("tide/1", "websocket");
        stream.write_all(ask.as_bytes()).await.unwrap();
        assert_eq!(answer(&mut stream).await.status, 502);
    }
}

#[tokio::test]
async fn an_upgrade_with_a_body_is_an_ordinary_request() {
    let mut upstream = Upstream::echo().await;
    for driver in DRIVERS {
        let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
        let request = "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Content-Length: 3\r\n\r\nabc";
        assert_eq!(bed.ask(request).await.status, 200);
        let seen = upstream.seen().await;
        assert_eq!((seen.header("upgrade"), seen.body.as_str()), (String::new(), "abc"));
    }
}

#[tokio::test]
async fn websocket_bytes_do_not_count_as_a_request_body() {
    let settings = Arc::new(Settings { body_bytes_max: Some(10), ..Settings::default() });
    let upstream = websocket_echo().await;
    for driver in DRIVERS {
        let model = Model::edited(&[upstream], |route| route.settings = Arc::clone(&settings));
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let refused = bed.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\n01234567890").await;
        assert_eq!(refused.status, 413, "{driver:?}: the limit holds for requests");
        let stream = bed.connect().await;
        let (mut socket, _) = tokio_tungstenite::client_async("ws://a.test/", stream).await.unwrap();
        for text in ["x".repeat(11), "y".repeat(100_000)] {
            socket.send(Message::text(text.clone())).await.unwrap();
            let back = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
            assert_eq!(back, Message::text(text), "{driver:?}");
        }
    }
}

#[tokio::test]
async fn an_upgrade_that_the_endpoint_refuses_closes_the_connection() {
    let mut upstream = Upstream::echo().await;
    for driver in DRIVERS {
        for early in [true, false] {
            let bed = tide(upstream.address, driver).await;
            let mut stream = bed.connect().await;
            let next = b"GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
            let sent = if early { [ASK, next].concat() } else { ASK.to_vec() };
            stream.write_all(&sent).await.unwrap();
            let refused = answer(&mut stream).await;
            assert_eq!((refused.status, refused.header("connection")), (200, Some("close")), "{driver:?} {early}");
            // A client that did not wait for the answer sends it now; the connection may be closed already.
            stream.write_all(next).await.ok();
            let mut rest = Vec::new();
            timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it stays open").ok();
            assert_eq!(String::from_utf8_lossy(&rest), "", "{driver:?} {early}");
            assert_eq!(upstream.seen().await.line, "GET / HTTP/1.1");
            assert!(upstream.is_quiet(), "{driver:?} {early}");
        }
    }
}

/// Agrees to every upgrade with a date, and then sends what looks like the head of a response.
async fn agrees_with_date(head: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(head.as_bytes()).await.unwrap();
            // The client has the head.
            stream.read_u8().await.unwrap();
            stream.write_all(TUNNELLED).await.unwrap();
            // Until the client closes.
            drop(stream.read_u8().await);
        }
    });
    address
}

const TUNNELLED: &[u8] = b"HTTP/1.1 200 OK\r\nDate: of the tunnel\r\nA: b\r\n\r\n";

#[tokio::test]
async fn the_bytes_of_a_tunnel_pass_whatever_they_look_like() {
    let head =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nDate: of the head\r\n\r\n";
    let upstream = agrees_with_date(head).await;
    for driver in DRIVERS {
        let bed = Bed::with(Model::to(&[upstream]), |options| options.driver = driver).await;
        let mut stream = bed.connect().await;
        let asked = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
        }
        let answer = String::from_utf8(answer).unwrap().to_lowercase();
        assert!(answer.starts_with("http/1.1 101 ") && answer.contains("\r\ndate: of the head\r\n"), "{answer}");
        stream.write_all(b"x").await.unwrap();
        let mut tunnelled = vec![0; TUNNELLED.len()];
        timeout(PATIENCE, stream.read_exact(&mut tunnelled)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&tunnelled), String::from_utf8_lossy(TUNNELLED), "{driver:?}");
    }
}

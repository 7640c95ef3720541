//! Endpoints to which no connection is ever made, as after the loss of a host.

use std::net::SocketAddr;
use std::sync::Arc;

use h2::Reason;
use tidegate_config::model::{AppProtocol, Settings};
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, route};
use super::retries::{WAYS, ask};
use super::streams::{client, get};
use super::timeouts::{MOMENT, now};

/// A listener that accepts nothing and whose backlog is full, so that no further connection completes.
struct Full {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

async fn full() -> Full {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(MOMENT, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 10, "the backlog is never full");
    }
    Full { address, _listener: listener, _waiting: waiting }
}

/// A data plane whose route to an endpoint has these settings.
async fn bed(driver: Driver, protocol: AppProtocol, endpoint: SocketAddr, settings: Settings) -> Bed {
    let mut route = route("web", protocol);
    route.settings = Arc::new(settings);
    let model = Model::default().route("a.test", route).backend("web", &[endpoint]);
    Bed::with(model, |options| options.driver = driver).await
}

const PROTOCOLS: [AppProtocol; 3] = [AppProtocol::Http, AppProtocol::H2c, AppProtocol::Https];

#[tokio::test]
async fn timeouts_of_a_request_bound_its_connecting() {
    let full = full().await;
    let (limit, none) = (Some(MOMENT), || Settings { connect_timeout: Some(PATIENCE), ..Settings::default() });
    for (driver, http2) in WAYS {
        for protocol in PROTOCOLS {
            for settings in [
                Settings { request_timeout: limit, ..none() },
                Settings { attempt_timeout: limit, ..none() },
                Settings { total_timeout: limit, ..none() },
            ] {
                let what = format!("{driver:?}, HTTP/2: {http2}, {protocol:?}: {settings:?}");
                let bed = bed(driver, protocol, full.address, settings).await;
                let began = now();
                assert_eq!(ask(&bed, http2, "GET", "").await, 504, "{what}");
                let took = began.elapsed();
                assert!((MOMENT..PATIENCE / 2).contains(&took), "{what}: after {took:?}");
                bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 1"#).await;
                bed.until_metric("tidegate_requests_in_flight 0").await;
            }
        }
    }
}

#[tokio::test]
async fn the_connect_timeout_has_a_reason_of_its_own() {
    let full = full().await;
    for (driver, http2) in WAYS {
        for protocol in PROTOCOLS {
            let settings = Settings { connect_timeout: Some(MOMENT), tries_max: Some(1), ..Settings::default() };
            let bed = bed(driver, protocol, full.address, settings).await;
            let began = now();
            assert_eq!(ask(&bed, http2, "GET", "").await, 504, "{driver:?}, HTTP/2: {http2}, {protocol:?}");
            assert!((MOMENT..PATIENCE / 2).contains(&began.elapsed()), "after {:?}", began.elapsed());
            bed.until_metric(r#"tidegate_requests_by_reason_total{reason="connect-timeout"} 1"#).await;
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
    }
}

#[tokio::test]
async fn a_request_whose_client_disconnects_while_connecting_ends() {
    let full = full().await;
    for (driver, http2) in WAYS {
        for protocol in PROTOCOLS {
            let settings = Settings { connect_timeout: Some(10 * PATIENCE), ..Settings::default() };
            let bed = bed(driver, protocol, full.address, settings).await;
            let (in_flight, none) = ("tidegate_requests_in_flight 1", "tidegate_requests_in_flight 0");
            if http2 {
                let mut send = client(&bed, 65_535).await;
                let (answer, mut body) = send.send_request(get("/"), true).unwrap();
                bed.until_metric(in_flight).await;
                body.send_reset(Reason::CANCEL);
                bed.until_metric(none).await;
                drop(answer);
            } else {
                let mut stream = bed.connect().await;
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
                bed.until_metric(in_flight).await;
                drop(stream);
                bed.until_metric(none).await;
            }
            bed.until_metric(r#"tidegate_requests_by_reason_total{reason="client-gone"} 1"#).await;
        }
    }
}

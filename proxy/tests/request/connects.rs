//! Endpoints to which no connection is ever made, as after the loss of a host.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::model::{AppProtocol, Settings};
use tidegate_proxy::Driver;
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

/// The status of a request, or `None` if its stream is reset.
async fn status(bed: &Bed, http2: bool) -> Option<u16> {
    if !http2 {
        return Some(bed.get("a.test", "/", "").await.status);
    }
    let answered = client(bed, 65_535).await.send_request(get("/"), true).unwrap().0;
    match timeout(PATIENCE, answered).await.expect("no answer") {
        Ok(response) => Some(response.status().as_u16()),
        Err(error) => {
            assert!(error.is_reset(), "{error}");
            None
        }
    }
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
                // Pingora cannot answer on a stream that is cut; the deadline and the end of connecting come together.
                let may_reset = driver == Driver::Full && http2 && settings.request_timeout.is_some();
                let what = format!("{driver:?}, HTTP/2: {http2}, {protocol:?}: {settings:?}");
                let bed = bed(driver, protocol, full.address, settings).await;
                let began = now();
                let status = status(&bed, http2).await;
                assert!(status == Some(504) || status.is_none() && may_reset, "{what}: {status:?}");
                let took = began.elapsed();
                assert!((MOMENT..PATIENCE / 2).contains(&took), "{what}: after {took:?}");
                bed.until_metric(r#"tidegate_answers_total{reason="upstream-timeout"} 1"#).await;
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
            bed.until_metric(r#"tidegate_answers_total{reason="connect-timeout"} 1"#).await;
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
    }
}

//! HTTP/2 endpoints that end their connections with GOAWAY (RFC 9113 section 6.8): requests on later streams than the
//! last one that it names were not processed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tidegate_config::model::{AppProtocol, AuthProtocol, Guard, RetryPolicy, Route, Settings};
use tidegate_proxy::Driver;
use tokio::net::TcpListener;

use super::bed::{Bed, Model, route};
use super::external_auth::service;
use super::frames::{Framed, GOAWAY, HEADERS, RST_STREAM, frame, headers};
use super::mirrors::mirror;
use super::streams::{client, get, post, response};
use super::upstream::Upstream;

const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// What an endpoint does with the first request of each connection. The others get no answer.
#[derive(Clone, Copy, Debug)]
enum First {
    /// It is answered, and is the last one.
    Answered,
    /// It is not processed.
    Excluded,
    /// It is not processed, and the stream is reset with REFUSED_STREAM. All others are answered.
    Refused,
    /// The same happens to all others.
    AllRefused,
    /// It is answered, and so are all others. No GOAWAY is sent.
    AllAnswered,
    /// It is processed, and the connection ends without its response.
    Broken,
}

/// An endpoint that sends GOAWAY with this code after the first request of each connection, and the number of requests
/// that it received.
async fn endpoint(first: First, code: u32) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, received) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(Framed::open(stream, false).await, first, code, Arc::clone(&count)));
        }
    });
    (address, received)
}

async fn serve(mut edge: Framed, first: First, code: u32, received: Arc<AtomicUsize>) {
    let mut own = None;
    while let Some(request) = edge.next().await {
        if request.kind == HEADERS {
            received.fetch_add(1, Ordering::Relaxed);
            own.get_or_insert(request.stream);
        }
        let is_first = own == Some(request.stream);
        let refuses = match first {
            First::Refused => Some(is_first),
            First::AllRefused => Some(true),
            First::AllAnswered => Some(false),
            First::Answered | First::Excluded | First::Broken => None,
        };
        if let Some(refuses) = refuses.filter(|_| request.ends_stream()) {
            let refusal = frame(RST_STREAM, 0, request.stream, &REFUSED_STREAM.to_be_bytes());
            let answer = headers(request.stream, &[(":status", "200")], None, true);
            edge.send(if refuses { &refusal } else { &answer }).await;
        }
        if !is_first || !request.ends_stream() {
            continue;
        }
        let last = if matches!(first, First::Excluded) { 0 } else { request.stream };
        let goaway = frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat());
        match first {
            First::Answered => {
                let answer = headers(request.stream, &[(":status", "200")], None, true);
                edge.send(&[answer, goaway].concat()).await;
            }
            First::Excluded => edge.send(&goaway).await,
            First::Broken => return edge.send(&goaway).await,
            First::Refused | First::AllRefused | First::AllAnswered => {}
        }
    }
}

async fn bed(driver: Driver, endpoint: SocketAddr) -> Bed {
    bed_with(driver, endpoint, Settings::default()).await
}

/// A route with settings.
async fn bed_with(driver: Driver, endpoint: SocketAddr, settings: Settings) -> Bed {
    let route = Route { settings: Arc::new(settings), ..route("web", AppProtocol::H2c) };
    let model = Model::default().route("a.test", route).backend("web", &[endpoint]);
    Bed::with(model, |options| options.driver = driver).await
}

/// The statuses of so many requests at once, every other one with a body.
async fn statuses(bed: &Bed, count: usize) -> Vec<u16> {
    let client = client(bed, 65_535).await;
    let ask = |number: usize| {
        let mut client = client.clone();
        async move {
            let is_upload = number % 2 == 1;
            let request = if is_upload { post(Some(5)) } else { get("/") };
            let (answered, mut body) = client.send_request(request, !is_upload).unwrap();
            if is_upload {
                body.send_data(Bytes::from_static(b"hello"), true).unwrap();
            }
            response(answered).await.status().as_u16()
        }
    };
    join_all((0..count).map(ask)).await
}

#[tokio::test]
async fn requests_that_a_goaway_excludes_do_not_fail() {
    for driver in [Driver::Both, Driver::Pingora] {
        for code in [NO_ERROR, ENHANCE_YOUR_CALM] {
            let bed = bed(driver, endpoint(First::Answered, code).await.0).await;
            for round in 0..10 {
                assert_eq!(statuses(&bed, 20).await, [200; 20], "{driver:?}, code {code}, round {round}");
            }
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
    }
}

#[tokio::test]
async fn a_retry_policy_without_attempts_does_not_fail_requests_that_were_not_processed() {
    for driver in [Driver::Both, Driver::Pingora] {
        for first in [First::Answered, First::Refused] {
            let retry = RetryPolicy { statuses: [503].into(), attempts: 0, backoff: Duration::ZERO };
            let settings = Settings { retry: Some(Arc::new(retry)), ..Settings::default() };
            let bed = bed_with(driver, endpoint(first, NO_ERROR).await.0, settings).await;
            assert_eq!(statuses(&bed, 20).await, [200; 20], "{driver:?} {first:?}");
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
    }
}

#[tokio::test]
async fn calls_and_copies_that_were_not_processed_are_sent_again() {
    let upstream = Upstream::echo().await;
    for driver in [Driver::Both, Driver::Pingora] {
        for first in [First::Answered, First::Refused] {
            let (auth, copy) = (endpoint(first, NO_ERROR).await.0, endpoint(first, NO_ERROR).await.0);
            let bed = bed_with_calls(driver, &upstream, &[auth], copy).await;
            assert_eq!(statuses(&bed, 4).await, [200; 4], "{driver:?} {first:?}");
            bed.until_metric(r#"tidegate_mirrored_requests_total{outcome="sent"} 4"#).await;
        }
    }
}

/// A route with an authorisation service and a mirror.
async fn bed_with_calls(driver: Driver, upstream: &Upstream, auth: &[SocketAddr], copy: SocketAddr) -> Bed {
    let (path, lists) = ("/check".into(), Box::default);
    let protocol = AuthProtocol::Http { path, request_headers: lists(), response_headers: lists() };
    let guard = Guard::ExternalAuth(service(protocol, AppProtocol::H2c, 0));
    let model = Model::edited(&[upstream.address], |route| {
        route.guards = [guard].into();
        route.filters = [mirror("copy", 1, AppProtocol::H2c)].into();
    });
    let model = model.backend("auth", auth).backend("copy", &[copy]);
    Bed::with(model, |options| options.driver = driver).await
}

#[tokio::test]
async fn a_call_that_one_endpoint_refuses_goes_to_another() {
    let upstream = Upstream::echo().await;
    for driver in [Driver::Both, Driver::Pingora] {
        let (refusing, refused) = endpoint(First::AllRefused, NO_ERROR).await;
        let (copy, _) = endpoint(First::Answered, NO_ERROR).await;
        let (answering, _) = endpoint(First::AllAnswered, NO_ERROR).await;
        let bed = bed_with_calls(driver, &upstream, &[refusing, answering], copy).await;
        // Until chance has taken the refusing one first.
        while refused.load(Ordering::Relaxed) < 2 {
            assert_eq!(statuses(&bed, 4).await, [200; 4], "{driver:?}");
        }
    }
}

#[tokio::test]
async fn calls_and_copies_that_may_have_been_processed_are_not_sent_again() {
    let upstream = Upstream::echo().await;
    for driver in [Driver::Both, Driver::Pingora] {
        for code in [NO_ERROR, ENHANCE_YOUR_CALM] {
            let (auth, called) = endpoint(First::Broken, code).await;
            let (answering, _) = endpoint(First::AllAnswered, NO_ERROR).await;
            let (copy, copied) = endpoint(First::Broken, code).await;
            let bed = bed_with_calls(driver, &upstream, &[auth], copy).await;
            assert_eq!(statuses(&bed, 1).await, [503], "{driver:?}, code {code}");
            assert_eq!(called.load(Ordering::Relaxed), 1, "{driver:?}, code {code}");
            let bed = bed_with_calls(driver, &upstream, &[answering], copy).await;
            assert_eq!(statuses(&bed, 1).await, [200], "{driver:?}, code {code}");
            bed.until_metric(r#"tidegate_mirrored_requests_total{outcome="failed"} 1"#).await;
            assert_eq!(copied.load(Ordering::Relaxed), 1, "{driver:?}, code {code}");
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_excludes_every_request_is_tried_a_limited_number_of_times() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (address, received) = endpoint(First::Excluded, NO_ERROR).await;
        let bed = bed(driver, address).await;
        assert_eq!(statuses(&bed, 1).await, [502], "{driver:?}");
        // Those that do not count as attempts, and the attempts of a request.
        assert_eq!(received.load(Ordering::Relaxed), 4 + 3, "{driver:?}");
    }
}

#[tokio::test]
async fn a_request_that_a_goaway_includes_is_not_sent_again() {
    for driver in [Driver::Both, Driver::Pingora] {
        for code in [NO_ERROR, ENHANCE_YOUR_CALM] {
            let (address, received) = endpoint(First::Broken, code).await;
            let bed = bed(driver, address).await;
            let mut client = client(&bed, 65_535).await;
            let answered = client.send_request(post(None), true).unwrap().0;
            assert_eq!(response(answered).await.status(), 502, "{driver:?}, code {code}");
            assert_eq!(received.load(Ordering::Relaxed), 1, "{driver:?}, code {code}");
        }
    }
}

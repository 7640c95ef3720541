//! Mirrored requests.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::model::{AppProtocol, BackendKey, Filter, HeaderEdits, Mirror, Target};
use tidegate_config::object::ObjectName;
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, closed_port};
use super::retries::{WAYS, ask};
use super::streams::head;
use super::timeouts::now;
use super::upstream::{Reply, Upstream};

pub(crate) fn mirror(service: &str, numerator: u32, protocol: AppProtocol) -> Filter {
    let backend = BackendKey::tcp(ObjectName::new("shop", service), 80);
    let to = Arc::new(Target { backend, protocol, tls: None, fixed: None });
    Filter::Mirror(Mirror { to, numerator, denominator: 1 })
}

async fn bed(endpoint: SocketAddr, filters: &[Filter], copies: &[(&str, &[SocketAddr])], driver: Driver) -> Bed {
    let model = Model::edited(&[endpoint], |route| route.filters = filters.into());
    let model = copies.iter().fold(model, |model, (name, endpoints)| model.backend(name, endpoints));
    Bed::with(model, |options| options.driver = driver).await
}

async fn until_counted(bed: &Bed, outcome: &str, count: u32) {
    bed.until_metric(&format!(r#"tidegate_mirrored_requests_total{{outcome="{outcome}"}} {count}"#)).await;
}

#[tokio::test]
async fn every_mirror_gets_the_request_and_the_client_one_answer() {
    for (driver, http2) in WAYS {
        for (method, body) in [("GET", ""), ("POST", "abc")] {
            let what = format!("{method}, {driver:?}, HTTP/2: {http2}");
            let mut upstream = Upstream::echo().await;
            let mut one =
                Upstream::start(|_| Reply::SendAndClose("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned()))
                    .await;
            let mut two = Upstream::start(|_| Reply::Close).await;
            let mut none = Upstream::echo().await;
            let name = http::HeaderName::from_static("x-own");
            let set = [(name, http::HeaderValue::from_static("1"))].into();
            let filters = [
                mirror("one", 1, AppProtocol::Http),
                mirror("none", 0, AppProtocol::Http),
                Filter::RequestHeaders(HeaderEdits { set, ..HeaderEdits::default() }),
                mirror("two", 1, AppProtocol::Http),
            ];
            let copies = [("one", one.address), ("two", two.address), ("none", none.address)];
            let copies = copies.each_ref().map(|(name, address)| (*name, std::slice::from_ref(address)));
            let bed = bed(upstream.address, &filters, &copies, driver).await;
            assert_eq!(ask(&bed, http2, method, body).await, 200, "{what}");
            let original = upstream.seen().await;
            for copy in [&mut one, &mut two] {
                let seen = copy.seen().await;
                assert_eq!((&seen.line, seen.body.as_str()), (&original.line, body), "{what}");
                for header in ["host", "x-own", "x-request-id", "x-forwarded-for", "cdn-loop"] {
                    assert_eq!(seen.header(header), original.header(header), "{what}: {header}");
                }
                assert_eq!((seen.header("connection").as_str(), copy.is_quiet()), ("close", true), "{what}");
            }
            until_counted(&bed, "sent", 2).await;
            assert!(none.is_quiet() && upstream.is_quiet(), "{what}");
            bed.until_metric("tidegate_mirrored_requests_in_flight 0").await;
        }
    }
}

#[tokio::test]
async fn a_mirror_neither_delays_nor_fails_a_request() {
    let upstream = Upstream::echo().await;
    let silent = Upstream::start(|_| Reply::Silence).await;
    for (driver, http2) in WAYS {
        let filters = ["silent", "refusing", "empty", "absent"].map(|name| mirror(name, 1, AppProtocol::Http));
        let filters = [filters.as_slice(), &[mirror("silent", 1, AppProtocol::H2c)]].concat();
        let copies: [(&str, &[SocketAddr]); 3] =
            [("silent", &[silent.address]), ("refusing", &[closed_port()]), ("empty", &[])];
        let bed = bed(upstream.address, &filters, &copies, driver).await;
        let began = now();
        assert_eq!(ask(&bed, http2, "GET", "").await, 200, "{driver:?}, HTTP/2: {http2}");
        assert!(began.elapsed() < PATIENCE / 2, "{driver:?}, HTTP/2: {http2}: after {:?}", began.elapsed());
        until_counted(&bed, "failed", 1).await;
        until_counted(&bed, "no-endpoint", 2).await;
        bed.until_metric("tidegate_mirrored_requests_in_flight 2").await;
    }
}

#[tokio::test]
async fn a_mirror_can_complete_its_response() {
    let upstream = Upstream::echo().await;
    for (driver, http2) in WAYS {
        let mirrored = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let copies: [(&str, &[SocketAddr]); 1] = [("copy", &[mirrored.local_addr().unwrap()])];
        let bed = bed(upstream.address, &[mirror("copy", 1, AppProtocol::Http)], &copies, driver).await;
        assert_eq!(ask(&bed, http2, "GET", "").await, 200, "{driver:?}, HTTP/2: {http2}");
        let mut stream = timeout(PATIENCE, mirrored.accept()).await.unwrap().unwrap().0;
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n").await.unwrap();
        for _ in 0..3 {
            stream.write_all(&[b'x'; 100_000]).await.unwrap();
        }
        stream.shutdown().await.unwrap();
        // A reader that left early would have reset the connection.
        let end = timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap();
        assert_eq!(end.unwrap(), 0, "{driver:?}, HTTP/2: {http2}");
    }
}

#[tokio::test]
async fn large_bodies_and_unforwarded_requests_are_not_mirrored() {
    let mut copy = Upstream::echo().await;
    let upstream = Upstream::echo().await;
    let filters = [mirror("copy", 1, AppProtocol::Http)];
    for (driver, http2) in WAYS {
        let copies: [(&str, &[SocketAddr]); 1] = [("copy", &[copy.address])];
        let large = bed(upstream.address, &filters, &copies, driver).await;
        assert_eq!(ask(&large, http2, "POST", &"0123456789".repeat(10_000)).await, 200, "{driver:?}, HTTP/2: {http2}");
        until_counted(&large, "too-large", 1).await;
        let refused = bed(closed_port(), &filters, &copies, driver).await;
        assert_eq!(ask(&refused, http2, "GET", "").await, 502, "{driver:?}, HTTP/2: {http2}");
        until_counted(&refused, "aborted", 1).await;
        assert!(copy.is_quiet(), "{driver:?}, HTTP/2: {http2}");
    }
}

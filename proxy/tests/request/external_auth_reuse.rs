//! Resources kept for authorisation services: idle connections, their number, and bodies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidegate_proxy::{Driver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::time::{sleep, timeout};

use super::bed::PATIENCE;
use super::external_auth::{bed, by, over_http, send, until_counted};
use super::retries::WAYS;
use super::upstream::{Reply, Upstream};

/// An authorisation service that allows everything, and closes its first connection on the second question instead of
/// an answer.
async fn closes_when_reused() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let closes = count.fetch_add(1, Relaxed) == 0;
            tokio::spawn(async move {
                let (mut asked, mut answered) = (Vec::new(), false);
                while stream.read_buf(&mut asked).await.is_ok_and(|count| count > 0) {
                    if !asked.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    if closes && answered {
                        return;
                    }
                    asked.clear();
                    answered = true;
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                }
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn a_connection_that_closes_on_reuse_fails_no_request() {
    let mut upstream = Upstream::echo().await;
    let service = over_http(&[], &[], 0);
    for (driver, http2) in WAYS {
        let (auth, connections) = closes_when_reused().await;
        let bed = bed(&service, upstream.address, &[auth], by(driver)).await;
        for number in 0..2 {
            let got = send(&bed, http2, ("GET", "/"), &[], ("", false)).await;
            assert_eq!(got.status, 200, "{driver:?}, HTTP/2: {http2}, {number}: {}", got.body);
            upstream.seen().await;
        }
        assert_eq!(connections.load(Relaxed), 2, "{driver:?}, HTTP/2: {http2}: the first one was used twice");
        until_counted(&bed, "allowed", "", 2).await;
    }
}

/// A check may have an effect, so it is executed once.
#[tokio::test]
async fn a_check_that_breaks_a_new_connection_is_not_repeated() {
    let upstream = Upstream::echo().await;
    let service = over_http(&[], &[], 0);
    for reply in [|| Reply::Close, || Reply::Reset(String::new()), || Reply::SendAndClose("HTTP/1.1 200".to_owned())] {
        for (driver, http2) in WAYS {
            let mut auth = Upstream::start(move |_| reply()).await;
            let bed = bed(&service, upstream.address, &[auth.address], by(driver)).await;
            assert_eq!(send(&bed, http2, ("POST", "/"), &[], ("", false)).await.status, 503);
            until_counted(&bed, "failed", "broken", 1).await;
            auth.seen().await;
            assert!(auth.is_quiet(), "{driver:?}, HTTP/2: {http2}: asked twice");
        }
    }
}

/// An authorisation service that answers once it has received this many questions, each on a connection of its own; and
/// the number of open connections.
async fn answers_together(questions: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (open, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(questions)));
    let count = Arc::clone(&open);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (count, all) = (Arc::clone(&count), Arc::clone(&all));
            tokio::spawn(async move {
                count.fetch_add(1, Relaxed);
                let mut asked = Vec::new();
                while stream.read_buf(&mut asked).await.is_ok_and(|count| count > 0) {
                    if asked.ends_with(b"\r\n\r\n") {
                        asked.clear();
                        all.wait().await;
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                    }
                }
                count.fetch_sub(1, Relaxed);
            });
        }
    });
    (address, open)
}

/// Idle connections use reserved file descriptors, so their number is limited.
#[tokio::test]
async fn idle_connections_are_limited_by_file_descriptors() {
    const KEPT: usize = 2;
    let upstream = Upstream::echo().await;
    let service = over_http(&[], &[], 0);
    for (driver, http2) in WAYS {
        let (auth, open) = answers_together(3 * KEPT).await;
        let set = |options: &mut Options| {
            by(driver)(options);
            options.upstream.pool_size = KEPT;
        };
        let bed = bed(&service, upstream.address, &[auth], set).await;
        let ask = |_| send(&bed, http2, ("GET", "/"), &[], ("", false));
        for got in futures::future::join_all((0..3 * KEPT).map(ask)).await {
            assert_eq!(got.status, 200, "{driver:?}, HTTP/2: {http2}: {}", got.body);
        }
        let few = async {
            while open.load(Relaxed) != KEPT {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, few).await.unwrap_or_else(|_| panic!("{driver:?}: {} are open", open.load(Relaxed)));
    }
}

/// The body is kept until the request ends, because it may have to be sent to the endpoint again.
#[tokio::test]
async fn a_buffered_body_is_charged_until_its_request_ends() {
    const KIB: usize = 40;
    let upstream = Upstream::start(|_| Reply::Silence).await;
    let auth = Upstream::start(|_| Reply::ok("")).await;
    let service = over_http(&[], &[], 64 * 1024);
    let bed = bed(&service, upstream.address, &[auth.address], by(Driver::Both)).await;
    let mut stream = bed.connect().await;
    let body = "x".repeat(KIB * 1024);
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    until_counted(&bed, "allowed", "", 1).await;
    // A connection, a request, and the body.
    bed.until_metric(&format!("tidegate_budget_memory_bytes {}", (8 + 64 + KIB) * 1024)).await;
    drop(stream);
    bed.until_metric("tidegate_budget_memory_bytes 0").await;
}

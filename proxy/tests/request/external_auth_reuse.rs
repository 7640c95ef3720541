//! Connections to authorisation services that close while they are idle.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::external_auth::{bed, by, over_http, send, until_counted};
use super::retries::WAYS;
use super::upstream::Upstream;

/// An authorisation service that allows everything, and closes its first connection on the second question instead of an answer.
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
async fn a_connection_that_closes_when_it_is_reused_costs_no_request() {
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

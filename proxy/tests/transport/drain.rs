//! The end: what is in flight finishes, what is idle closes, what takes too long is cut.

use std::time::Duration;

use tokio::net::TcpStream;

use super::bed::{Bed, PATIENCE, http, nobody_listens};
use super::clients::{Http1, assert_ok, h2_get};

#[tokio::test]
async fn what_is_in_flight_finishes_and_the_rest_closes() {
    let key = http("127.0.0.1:0");
    let bed = Bed::start(&[key]).await;
    let address = bed.address(key).await;
    let mut busy = Http1::connect(address).await;
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut idle = Http1::connect(address).await;
    assert_ok(&idle.get("/").await, "/ ");
    let (mut sender, connection) = h2::client::handshake(TcpStream::connect(address).await.unwrap()).await.unwrap();
    let connection = tokio::spawn(connection);
    let stream = tokio::spawn(async move { h2_get(&mut sender, "/wait2").await });
    bed.upstream.wait_for_requests(3).await;

    let go = bed.upstream.go.clone();
    let drained = tokio::spawn(bed.drain(PATIENCE));
    idle.closed().await;
    nobody_listens(address).await;
    assert!(!drained.is_finished());
    go.send_replace(true);
    let response = busy.response().await.unwrap();
    assert_ok(&response, "/wait ");
    assert!(response.to_lowercase().contains("connection: close\r\n"), "{response}");
    busy.closed().await;
    assert_eq!(stream.await.unwrap().unwrap(), (200, "/wait2 ".to_owned()));
    // The client is told to go away, and does.
    tokio::time::timeout(PATIENCE, connection).await.expect("no GOAWAY").unwrap().unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, drained).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn what_outlives_the_grace_is_cut_and_counted() {
    let key = http("127.0.0.1:0");
    let bed = Bed::start(&[key]).await;
    let mut busy = Http1::connect(bed.address(key).await).await;
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    bed.upstream.wait_for_requests(1).await;
    let _go = bed.upstream.go.clone();
    assert_eq!(bed.drain(Duration::from_millis(100)).await, 1);
    busy.closed().await;
}

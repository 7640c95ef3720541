//! HTTP/2 clients that do not take local replies: each keeps the head of its request alive.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::Request;
use tidegate_proxy::{Driver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::bed::{Bed, Model, PATIENCE, answer};
use super::streams::{response, rest};
use super::timeouts::now;

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

/// The charges in KiB of a connection, of HTTP/2 on it, and of an answer that waits.
const CONNECTION: usize = 8;
const HTTP2: usize = 40;
const ANSWER: usize = 64;

/// A data plane without routes, so that every answer is a 404.
async fn bed(driver: Driver, set: impl FnOnce(&mut Options)) -> Bed {
    Bed::with(Model::default(), |options| {
        options.driver = driver;
        options.budget.client_share = 100;
        set(options);
    })
    .await
}

/// A client whose streams have no window.
async fn stalling(bed: &Bed) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let mut builder = Builder::new();
    builder.initial_window_size(0).initial_max_send_streams(100);
    let (send, connection) = builder.handshake(bed.connect().await).await.unwrap();
    (send.ready().await.unwrap(), tokio::spawn(connection))
}

async fn ask(send: &SendRequest<Bytes>) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    let request = Request::get("http://nowhere.test/").body(()).unwrap();
    send.clone().ready().await?.send_request(request, true)
}

fn charged(kib: usize) -> String {
    format!("tidegate_budget_memory_bytes {}", kib * 1024)
}

#[tokio::test]
async fn an_answer_that_its_client_does_not_take_is_charged() {
    for driver in DRIVERS {
        // Room for three answers.
        let own = CONNECTION + HTTP2;
        let bed = bed(driver, |options| options.budget.memory_kib = (own + 3 * ANSWER) as u64 + 63).await;
        let (send, _connection) = stalling(&bed).await;
        bed.until_metric(&charged(own)).await;
        let mut answers = Vec::new();
        for count in 1..=3 {
            answers.push(response(ask(&send).await.unwrap().0).await);
            bed.until_metric(&charged(own + count * ANSWER)).await;
        }
        for _ in 0..5 {
            let mut beyond = response(ask(&send).await.unwrap().0).await;
            let error = rest(beyond.body_mut()).await.unwrap_err();
            assert!(error.is_reset() && error.is_remote(), "{driver:?}: {error}");
        }
        assert!(answers.iter().all(|answer| answer.status() == 404), "{driver:?}");
        drop(answers);
        bed.until_metric(&charged(own)).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_taken_byte_by_byte_ends_in_time() {
    for driver in DRIVERS {
        let limit = Duration::from_millis(500);
        let bed = bed(driver, |options| options.client.write_stall = limit).await;
        let mut stream = bed.connect().await;
        let (preface, settings) = (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        // `:method GET`, `:scheme http`, `:path /` and `:authority a` by the static table (RFC 7541 appendix A).
        let head = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'a'];
        stream.write_all(&[&preface[..], &settings, &head].concat()).await.unwrap();
        bed.until_metric("tidegate_requests_in_flight 1").await;
        let (mut read, mut write) = stream.into_split();
        let drain = tokio::spawn(async move { while matches!(read.read(&mut [0; 4096]).await, Ok(1..)) {} });
        let began = now();
        let ended = async {
            while !bed.metrics().contains("tidegate_requests_in_flight 0\n") {
                // WINDOW_UPDATE of stream 1 by one byte.
                write.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 1]).await.unwrap();
                sleep(limit / 20).await;
            }
        };
        timeout(PATIENCE, ended).await.expect("it never ends");
        assert!(began.elapsed() < 8 * limit, "{driver:?}: {:?}", began.elapsed());
        drain.abort();
    }
}

#[tokio::test]
async fn resets_of_answers_that_wait_count_as_resets() {
    for driver in DRIVERS {
        let bed = bed(driver, |_| ()).await;
        let (send, connection) = stalling(&bed).await;
        let flood = async {
            while let Ok(streams) =
                join_all((0..50).map(|_| ask(&send))).await.into_iter().collect::<Result<Vec<_>, _>>()
            {
                let mut resets = Vec::new();
                for (answer, reset) in streams {
                    let Ok(Ok(answer)) = timeout(PATIENCE, answer).await else { return };
                    resets.push((answer, reset));
                }
                resets.iter_mut().for_each(|(_, reset)| reset.send_reset(Reason::CANCEL));
            }
        };
        timeout(PATIENCE, flood).await.expect("it is never ended");
        let error = timeout(PATIENCE, connection).await.unwrap().unwrap().unwrap_err();
        assert_eq!((error.is_go_away(), error.reason()), (true, Some(Reason::ENHANCE_YOUR_CALM)), "{driver:?}");
        bed.until_metric(r#"tidegate_http2_connections_ended_total{reason="too-many-resets"} 1"#).await;
        bed.until_metric("tidegate_requests_in_flight 0").await;
    }
}

#[tokio::test]
async fn the_memory_of_http2_is_part_of_the_share_of_its_client() {
    // Two connections are half of it, and more than a quarter.
    let memory = 4 * (CONNECTION + HTTP2) as u64;
    let bed =
        bed(Driver::Both, |options| (options.budget.memory_kib, options.budget.client_share) = (memory, 25)).await;
    let _first = stalling(&bed).await;
    let _second = stalling(&bed).await;
    bed.until_metric(&charged(2 * (CONNECTION + HTTP2))).await;
    let mut third = bed.connect().await;
    assert!(matches!(timeout(PATIENCE, third.read(&mut [0])).await.expect("it stays open"), Ok(0) | Err(_)));
    bed.until_metric(r#"tidegate_connections_refused_total{reason="client"} 1"#).await;
}

#[tokio::test]
async fn a_long_head_is_charged_until_it_is_complete() {
    let bed = bed(Driver::Both, |options| options.budget.memory_kib = 150).await;
    let mut clients = [bed.connect().await, bed.connect().await];
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ").await.unwrap();
    }
    bed.until_metric(&charged(2 * CONNECTION)).await;
    clients[0].write_all(&[b'x'; 9 * 1024]).await.unwrap();
    bed.until_metric(&charged(2 * CONNECTION + 64)).await;
    clients[1].write_all(&[b'x'; 40 * 1024]).await.unwrap();
    bed.until_metric(&charged(2 * CONNECTION + 2 * 64)).await;
    // Neither has a request yet, so the first one gives way to a third client, with its charges.
    let mut third = bed.connect().await;
    third.write_all(&[&b"GET / HTTP/1.1\r\nHost: a\r\nX: "[..], &[b'x'; 9 * 1024]].concat()).await.unwrap();
    let [first, second] = &mut clients;
    assert!(matches!(timeout(PATIENCE, first.read(&mut [0])).await.expect("it stays open"), Ok(0) | Err(_)));
    bed.until_metric(&charged(2 * CONNECTION + 2 * 64)).await;
    for client in [second, &mut third] {
        client.write_all(b"\r\n\r\n").await.unwrap();
        assert_eq!(answer(client).await.status, 404);
    }
    bed.until_metric(&charged(2 * CONNECTION)).await;
}

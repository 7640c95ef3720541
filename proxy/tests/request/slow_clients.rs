//! Clients that send or read bodies too slowly. No client can reach the required rate, so any wait for a client counts
//! as too slow after the grace period; if nothing happens to a client, the edge did not wait for it.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use tidegate_config::model::AppProtocol;
use tidegate_proxy::{Driver, Enforce, Options, RateLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::bed::{Bed, Model, PATIENCE, answer, route};
use super::streams::{by_hand, client, get, head, post, push, response, rest};

/// The grace period, and a part of it after which a client moves a little.
const GRACE: Duration = Duration::from_millis(600);
const STEP: Duration = Duration::from_millis(150);

/// The number of steps after which a slow client must have been disconnected.
const STEPS_MAX: u32 = 100;

/// Longer than it takes to notice a slow client.
const LONG: Duration = Duration::from_millis(2000);

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

fn held_to(driver: Driver, enforce: Enforce) -> impl FnOnce(&mut Options) {
    move |options| {
        options.driver = driver;
        options.client.rates = RateLimits { bytes_per_second: u32::MAX, grace: GRACE, enforce };
    }
}

async fn bed(driver: Driver, enforce: Enforce) -> (Bed, TcpListener) {
    by_hand(held_to(driver, enforce)).await
}

/// Sends a byte of a body from time to time, until the edge answers.
async fn trickle(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    for _ in 0..STEPS_MAX {
        stream.write_all(b"x").await.unwrap();
        if let Ok(Ok(1..)) = timeout(STEP, stream.read_buf(&mut said)).await {
            timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("the edge does not close").ok();
            return String::from_utf8_lossy(&said).into_owned();
        }
    }
    panic!("the edge waits for ever")
}

#[tokio::test]
async fn a_body_that_trickles_over_http1_is_answered_408() {
    for driver in DRIVERS {
        let (bed, listener) = bed(driver, Enforce::Always).await;
        let mut stream = bed.connect().await;
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n").await.unwrap();
        let mut endpoint = listener.accept().await.unwrap().0;
        tokio::spawn(async move { while matches!(endpoint.read(&mut [0; 64]).await, Ok(1..)) {} });
        let said = trickle(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 408 ") && said.to_lowercase().contains("connection: close"), "{said}");
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="body-stalled"} 1"#).await;
    }
}

#[tokio::test]
async fn a_body_that_trickles_over_http2_is_answered_408() {
    for driver in DRIVERS {
        let (bed, listener) = bed(driver, Enforce::Always).await;
        let (answered, mut body) = client(&bed, 64 << 10).await.send_request(post(Some(100_000)), false).unwrap();
        let mut endpoint = listener.accept().await.unwrap().0;
        tokio::spawn(async move { while matches!(endpoint.read(&mut [0; 64]).await, Ok(1..)) {} });
        let trickle = async {
            loop {
                // Further data are refused once the stream has ended.
                body.send_data(Bytes::from_static(b"x"), false).ok();
                sleep(STEP).await;
            }
        };
        let status = tokio::select! {
            answer = response(answered) => answer.status(),
            () = trickle => unreachable!(),
        };
        assert_eq!(status, 408, "{driver:?}");
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="body-stalled"} 1"#).await;
    }
}

#[tokio::test]
async fn an_upload_that_waits_for_its_endpoint_does_not_count_as_slow() {
    const BYTES: usize = 24 << 20;
    for driver in DRIVERS {
        let (bed, listener) = by_hand(|options| {
            held_to(driver, Enforce::Always)(options);
            // A rate that the client reaches and the endpoint does not.
            options.client.rates.bytes_per_second = 10_000_000;
        })
        .await;
        let mut stream = bed.connect().await;
        let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {BYTES}\r\n\r\n");
        let endpoint = tokio::spawn(async move {
            let mut endpoint = listener.accept().await.unwrap().0;
            head(&mut endpoint).await;
            let (mut taken, mut bytes) = (0, vec![0; 64 << 10]);
            sleep(LONG).await;
            while taken < BYTES {
                taken += endpoint.read(&mut bytes).await.unwrap();
            }
            endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            endpoint
        });
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; BYTES]).await.unwrap();
        assert_eq!(answer(&mut stream).await.status, 200, "{driver:?}");
        drop(endpoint.await);
    }
}

/// Sends a long response as long as it is read.
fn pour(mut endpoint: TcpStream) {
    tokio::spawn(async move {
        head(&mut endpoint).await;
        endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await.unwrap();
        while endpoint.write_all(&[b'x'; 1 << 14]).await.is_ok() {}
    });
}

#[tokio::test]
async fn a_reader_that_trickles_over_http1_is_disconnected() {
    for driver in DRIVERS {
        let (bed, listener) = bed(driver, Enforce::Always).await;
        let mut stream = bed.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        pour(listener.accept().await.unwrap().0);
        stream.read_exact(&mut [0; 100]).await.unwrap();
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="client-gone"} 1"#).await;
        bed.until_metric(r#"tidegate_connections_active{protocol="http"} 0"#).await;
    }
}

#[tokio::test]
async fn a_reader_that_trickles_over_http2_is_reset() {
    for driver in DRIVERS {
        let (bed, listener) = by_hand(|options| {
            held_to(driver, Enforce::Always)(options);
            // Pingora allows this long for a whole piece, which ends the wait for a client that reads only a part.
            options.client.write_stall = if driver == Driver::Pingora { LONG } else { PATIENCE };
        })
        .await;
        let (answered, _) = client(&bed, 16 << 10).await.send_request(get("/"), true).unwrap();
        pour(listener.accept().await.unwrap().0);
        let mut body = response(answered).await.into_body();
        let error = timeout(PATIENCE, async {
            loop {
                match body.data().await.expect("it ends well") {
                    Ok(_) => drop(body.flow_control().release_capacity(1)),
                    Err(error) => return error,
                }
                sleep(STEP).await;
            }
        });
        let error = error.await.expect("the edge waits for ever");
        assert!(error.is_reset() && error.reason() != Some(Reason::NO_ERROR), "{driver:?}: {error}");
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="client-gone"} 1"#).await;
    }
}

/// Sends a long response in small pieces as long as it is read.
fn drip(mut endpoint: TcpStream) -> JoinHandle<()> {
    let chunk = [b"64\r\n", &[b'x'; 100][..], b"\r\n"].concat();
    tokio::spawn(async move {
        head(&mut endpoint).await;
        endpoint.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        while endpoint.write_all(&chunk).await.is_ok() {
            sleep(STEP / 100).await;
        }
    })
}

/// Reads a response slowly to its end.
async fn sip(answered: h2::client::ResponseFuture) {
    let mut body = response(answered).await.into_body();
    while let Some(Ok(piece)) = body.data().await {
        sleep(STEP).await;
        body.flow_control().release_capacity(piece.len()).ok();
    }
}

#[tokio::test]
async fn the_pingora_driver_counts_small_pieces_that_are_read_too_slowly() {
    let (bed, listener) = bed(Driver::Pingora, Enforce::Always).await;
    let (answered, _) = client(&bed, 1000).await.send_request(get("/"), true).unwrap();
    let pieces = drip(listener.accept().await.unwrap().0);
    timeout(PATIENCE, sip(answered)).await.expect("the edge waits for ever");
    bed.until_metric(r#"tidegate_requests_by_reason_total{reason="client-gone"} 1"#).await;
    timeout(PATIENCE, pieces).await.expect("the endpoint is held").unwrap();
}

#[tokio::test]
async fn a_slow_response_does_not_count_as_a_slow_client() {
    for driver in DRIVERS {
        let (bed, listener) = bed(driver, Enforce::Always).await;
        let mut stream = bed.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        let (answered, _) = client(&bed, 64 << 10).await.send_request(get("/"), true).unwrap();
        for _ in 0..2 {
            let mut endpoint = listener.accept().await.unwrap().0;
            tokio::spawn(async move {
                head(&mut endpoint).await;
                endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n").await.unwrap();
                for _ in 0..10 {
                    sleep(GRACE / 3).await;
                    endpoint.write_all(b"line\n").await.unwrap();
                }
            });
        }
        assert_eq!(answer(&mut stream).await.body, "line\n".repeat(10), "{driver:?}");
        assert_eq!(rest(response(answered).await.body_mut()).await.unwrap(), 50, "{driver:?}");
    }
}

/// The files of a small budget. One slow request takes two.
const FILES: u32 = 16;

/// A data plane that disconnects slow clients under pressure, with this budget.
async fn small(driver: Driver) -> (Bed, TcpListener) {
    by_hand(|options| {
        held_to(driver, Enforce::UnderPressure)(options);
        (options.budget.files, options.budget.client_share) = (FILES, 100);
    })
    .await
}

/// Holds half of the budget by idle connections, beside `others`.
async fn press(bed: &Bed, others: u32) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..FILES / 2 {
        held.push(bed.connect().await);
    }
    bed.until_metric(&format!("tidegate_connections_active{{protocol=\"http\"}} {}", FILES / 2 + others)).await;
    held
}

/// Releases it, after the slow client has gone too.
async fn release(bed: &Bed, held: Vec<TcpStream>) {
    drop(held);
    bed.until_metric("tidegate_connections_active{protocol=\"http\"} 0").await;
}

/// Begins to send a body slowly; the task returns what the edge answers.
async fn slow_sender(bed: &Bed, listener: &TcpListener) -> JoinHandle<String> {
    let mut stream = bed.connect().await;
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n").await.unwrap();
    let mut endpoint = listener.accept().await.unwrap().0;
    tokio::spawn(async move { while matches!(endpoint.read(&mut [0; 64]).await, Ok(1..)) {} });
    tokio::spawn(async move { trickle(&mut stream).await })
}

/// Begins to read a response slowly; the task ends with it.
async fn slow_reader(bed: &Bed, listener: &TcpListener) -> JoinHandle<()> {
    let (answered, _) = client(bed, 1000).await.send_request(get("/"), true).unwrap();
    drip(listener.accept().await.unwrap().0);
    tokio::spawn(sip(answered))
}

#[tokio::test]
async fn slow_senders_are_disconnected_once_half_of_the_budget_is_used() {
    for driver in DRIVERS {
        let (bed, listener) = small(driver).await;
        let slow = slow_sender(&bed, &listener).await;
        sleep(LONG).await;
        assert!(!slow.is_finished(), "{driver:?}: without pressure");
        let held = press(&bed, 1).await;
        let said = timeout(PATIENCE, slow).await.expect("the edge waits for ever").unwrap();
        assert!(said.starts_with("HTTP/1.1 408 "), "{driver:?}: {said}");
        release(&bed, held).await;
        let slow = slow_sender(&bed, &listener).await;
        sleep(LONG).await;
        assert!(!slow.is_finished(), "{driver:?}: after the pressure");
        slow.abort();
    }
}

#[tokio::test]
async fn slow_readers_are_disconnected_once_half_of_the_budget_is_used() {
    for driver in DRIVERS {
        let (bed, listener) = small(driver).await;
        let slow = slow_reader(&bed, &listener).await;
        // A reset reaches the reader after what it has received.
        sleep(2 * LONG).await;
        assert!(!slow.is_finished(), "{driver:?}: without pressure");
        let held = press(&bed, 1).await;
        timeout(PATIENCE, slow).await.expect("the edge waits for ever").unwrap();
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="client-gone"} 1"#).await;
        release(&bed, held).await;
        let slow = slow_reader(&bed, &listener).await;
        sleep(2 * LONG).await;
        assert!(!slow.is_finished(), "{driver:?}: after the pressure");
        slow.abort();
    }
}

#[tokio::test]
async fn slow_clients_stay_without_pressure_or_enforcement() {
    for driver in DRIVERS {
        for enforce in [Enforce::UnderPressure, Enforce::Never] {
            let (bed, listener) = bed(driver, enforce).await;
            let mut stream = bed.connect().await;
            stream.set_nodelay(true).unwrap();
            stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 12\r\n\r\n").await.unwrap();
            let mut endpoint = listener.accept().await.unwrap().0;
            for _ in 0..12 {
                sleep(STEP).await;
                stream.write_all(b"x").await.unwrap();
            }
            assert!(head(&mut endpoint).await.starts_with("POST / "));
            endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            assert_eq!(answer(&mut stream).await.status, 200, "{driver:?} {enforce:?}");
        }
    }
}

fn grpc() -> Request<()> {
    Request::post("http://a.test/up").header("content-type", "application/grpc").body(()).unwrap()
}

#[tokio::test]
async fn grpc_streams_to_http2_endpoints_have_no_minimum_rate() {
    for driver in DRIVERS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let web = route("web", AppProtocol::H2c);
        let model = Model::default().route("a.test", web).backend("web", &[listener.local_addr().unwrap()]);
        let bed = Bed::with(model, held_to(driver, Enforce::Always)).await;
        let (answered, mut body) = client(&bed, 64 << 10).await.send_request(grpc(), false).unwrap();
        let endpoint = tokio::spawn(async move {
            let mut connection = h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap();
            while let Some(Ok((asked, mut respond))) = connection.accept().await {
                tokio::spawn(async move {
                    let mut body = asked.into_body();
                    while body.data().await.is_some() {}
                    respond.send_response(Response::new(()), true).unwrap();
                });
            }
        });
        for _ in 0..LONG.as_millis() / STEP.as_millis() {
            assert_eq!(push(&mut body, 1).await, 1, "{driver:?}");
            sleep(STEP).await;
        }
        body.send_data(Bytes::new(), true).unwrap();
        assert_eq!(response(answered).await.status(), 200, "{driver:?}");
        endpoint.abort();
    }
}

#[tokio::test]
async fn a_content_type_of_grpc_does_not_exempt_a_body_to_an_http1_endpoint() {
    for driver in DRIVERS {
        let (bed, listener) = bed(driver, Enforce::Always).await;
        let (answered, mut body) = client(&bed, 64 << 10).await.send_request(grpc(), false).unwrap();
        let mut endpoint = listener.accept().await.unwrap().0;
        tokio::spawn(async move { while matches!(endpoint.read(&mut [0; 64]).await, Ok(1..)) {} });
        let sending = async {
            loop {
                body.send_data(Bytes::from_static(b"x"), false).ok();
                sleep(STEP).await;
            }
        };
        // The failure has the form of gRPC: DEADLINE_EXCEEDED.
        tokio::select! {
            answer = response(answered) => assert_eq!(answer.headers()["grpc-status"], "4", "{driver:?}"),
            () = sending => unreachable!(),
        }
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="body-stalled"} 1"#).await;

        let mut stream = bed.connect().await;
        stream.set_nodelay(true).unwrap();
        let post = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc\r\nContent-Length: 1000\r\n\r\n";
        stream.write_all(post).await.unwrap();
        let mut endpoint = listener.accept().await.unwrap().0;
        tokio::spawn(async move { while matches!(endpoint.read(&mut [0; 64]).await, Ok(1..)) {} });
        let said = trickle(&mut stream).await.to_lowercase();
        assert!(said.contains("grpc-status: 4") && said.contains("connection: close"), "{driver:?}: {said}");
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="body-stalled"} 2"#).await;
    }
}

#[tokio::test]
async fn tunnels_have_no_minimum_rate() {
    let (bed, listener) = bed(Driver::Both, Enforce::Always).await;
    let mut stream = bed.connect().await;
    let upgrade = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(upgrade).await.unwrap();
    let mut endpoint = listener.accept().await.unwrap().0;
    head(&mut endpoint).await;
    let switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    endpoint.write_all(switched).await.unwrap();
    assert_eq!(answer(&mut stream).await.status, 101);
    let much = vec![b'x'; 24 << 20];
    let sending = tokio::spawn(async move {
        endpoint.write_all(&much).await.unwrap();
        endpoint
    });
    sleep(LONG).await;
    let mut taken = 0;
    while taken < 24 << 20 {
        taken += timeout(PATIENCE, stream.read(&mut [0; 1 << 16])).await.unwrap().unwrap().max(1);
    }
    for _ in 0..LONG.as_millis() / STEP.as_millis() {
        stream.write_all(b"x").await.unwrap();
        sleep(STEP).await;
    }
    let mut endpoint = sending.await.unwrap();
    timeout(PATIENCE, endpoint.read_exact(&mut [0; 5])).await.unwrap().unwrap();
}

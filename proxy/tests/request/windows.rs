//! The memory for a client that announces large windows and reads nothing.

use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use tidegate_config::model::AppProtocol;
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;

use super::bed::{Bed, Model, PATIENCE, route};
use super::streams::{by_hand, client, get, head, response, rest};

fn requests_in_flight(bed: &Bed) -> usize {
    let metrics = bed.metrics();
    let count = metrics.lines().find_map(|line| line.strip_prefix("tidegate_requests_in_flight "));
    count.unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_edge_buffers_little_even_for_large_client_windows() {
    const STREAMS: usize = 128;
    for driver in [Driver::Both, Driver::Pingora] {
        let (bed, listener) = by_hand(|options| options.driver = driver).await;
        let mut builder = Builder::new();
        builder.initial_window_size((1 << 31) - 1).initial_connection_window_size((1 << 31) - 1);
        let (mut send, mut connection) = builder.handshake::<_, Bytes>(bed.connect().await).await.unwrap();
        let mut answered = Vec::new();
        let asking = async {
            let mut endpoints = Vec::new();
            for _ in 0..STREAMS {
                send = send.clone().ready().await.unwrap();
                answered.push(send.send_request(get("/"), true).unwrap());
                let (mut endpoint, _) = listener.accept().await.unwrap();
                head(&mut endpoint).await;
                endpoints.push(endpoint);
            }
            endpoints
        };
        let endpoints = tokio::select! {
            endpoints = asking => endpoints,
            ended = &mut connection => panic!("it ended: {ended:?}"),
        };
        // From here on the client does not read. Each response is smaller than h2's own buffer.
        let response = ["HTTP/1.1 200 OK\r\nContent-Length: 390001\r\n\r\n", &"x".repeat(390_001)].concat();
        for mut endpoint in endpoints {
            let response = response.clone();
            tokio::spawn(async move {
                endpoint.write_all(response.as_bytes()).await.unwrap();
                // The window is open, so only the client's lack of reading keeps the request from ending.
                sleep(PATIENCE).await;
            });
        }
        // Until nothing has moved for a while.
        let (mut in_flight, mut still) = (STREAMS, 0);
        while still < 20 {
            sleep(Duration::from_millis(50)).await;
            let now = requests_in_flight(&bed);
            still = if now == in_flight { still + 1 } else { 0 };
            in_flight = now;
        }
        assert!(in_flight > STREAMS / 2, "{driver:?}: {in_flight} of {STREAMS}");
    }
}

/// The size of a response that exceeds Pingora's own window of a connection.
const MUCH: usize = 12 << 20;

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other_at_the_same_endpoint() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, mut connections) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tell.send(()).unwrap();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                    tokio::spawn(async move { body.send_data(Bytes::from(vec![b'x'; MUCH]), true) });
                }
            });
        }
    });
    let model = Model::default().route("a.test", route("web", AppProtocol::H2c)).backend("web", &[address]);
    let bed = Bed::start(model).await;
    let mut silent = client(&bed, 0).await;
    let mut stalled = Vec::new();
    for _ in 0..5 {
        let answered = silent.send_request(get("/"), true).unwrap().0;
        silent = silent.ready().await.unwrap();
        stalled.push(response(answered).await);
    }
    sleep(Duration::from_millis(300)).await;
    let mut reading = client(&bed, 64 << 10).await;
    let mut answer = response(reading.send_request(get("/"), true).unwrap().0).await;
    assert_eq!(rest(answer.body_mut()).await.unwrap(), MUCH);
    connections.recv().await.unwrap();
    assert!(connections.try_recv().is_err(), "all of them went over one connection");
    drop(stalled);
}

//! HTTP/2 clients that open streams and reset them shortly after: each stream costs the edge and an endpoint a
//! connection and a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use h2::Reason;
use h2::client::{Builder, ResponseFuture};
use tidegate_proxy::Driver;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::bed::{Bed, Model, PATIENCE};
use super::streams::{client, get, response, rest};
use super::timeouts::now;
use super::upstream::Upstream;

/// Long enough for a request to reach its endpoint.
const MOMENT: Duration = Duration::from_millis(12);

/// The number of concurrent streams of a client: few, so that all of them are soon open.
const AT_ONCE: usize = 20;

/// A stream is reset early within this time of its start.
const EARLY: Duration = Duration::from_secs(1);

/// The maximum number of connections to endpoints that a client may cause before its own ends: as many as it may open
/// streams in that time.
const CONNECTIONS_MAX: usize = 600;

/// An endpoint that accepts connections and never answers, and the number of its connections.
async fn silent() -> (TcpListener, Arc<AtomicUsize>) {
    (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::default())
}

#[tokio::test]
async fn a_client_that_resets_most_streams_early_gets_enhance_your_calm() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (listener, connections) = silent().await;
        let bed = Bed::with(Model::to(&[listener.local_addr().unwrap()]), |options| options.driver = driver).await;
        let counted = Arc::clone(&connections);
        let endpoint = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Relaxed);
                tokio::spawn(async move { while matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {} });
            }
        });
        let (send, connection) = Builder::new().handshake::<_, Bytes>(bed.connect().await).await.unwrap();
        let ended = tokio::spawn(connection);
        let mut late = 0;
        let flood = async {
            for round in 1.. {
                let (mut streams, began) = (Vec::new(), now());
                for _ in 0..AT_ONCE {
                    let Ok(mut send) = send.clone().ready().await else { return };
                    let Ok(stream) = send.send_request(get("/"), true) else { return };
                    streams.push(stream);
                }
                // h2 itself ends a client that is faster than the edge accepts streams.
                while connections.load(Relaxed) < round * AT_ONCE && !ended.is_finished() {
                    sleep(MOMENT).await;
                }
                streams.into_iter().for_each(|(_, mut body)| body.send_reset(Reason::CANCEL));
                sleep(MOMENT).await;
                // On a busy machine, the edge may see these resets too late to count them; others must make up for it.
                late += if began.elapsed() < EARLY { 0 } else { 2 * AT_ONCE };
            }
        };
        timeout(PATIENCE, flood).await.expect("it is never ended");
        let error = timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap_err();
        assert_eq!((error.is_go_away(), error.reason()), (true, Some(Reason::ENHANCE_YOUR_CALM)), "{driver:?}");
        bed.until_metric(r#"tidegate_http2_connections_ended_total{reason="too-many-resets"} 1"#).await;
        bed.until_metric("tidegate_requests_in_flight 0").await;
        let connections = connections.load(Relaxed);
        let max = CONNECTIONS_MAX + late;
        assert!((1..=max).contains(&connections), "{driver:?}: {connections} connections to the endpoint, of {max}");
        println!("{driver:?}: {connections} connections to the endpoint");
        endpoint.abort();
    }
}

#[tokio::test]
async fn a_client_that_resets_forty_percent_of_its_streams_is_served() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (listener, _) = silent().await;
        let upstream = Upstream::echo().await;
        let model = Model::to(&[upstream.address])
            .route("slow.test", super::bed::route("slow", tidegate_config::model::AppProtocol::Http))
            .backend("slow", &[listener.local_addr().unwrap()]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let send = client(&bed, 64 << 10).await;
        for _ in 0..10 {
            // Otherwise the streams of the last round could be counted for those of this one.
            bed.until_metric("tidegate_requests_in_flight 0").await;
            let mut streams = Vec::new();
            for _ in 0..40 {
                let mut send = send.clone().ready().await.unwrap();
                let slow = http::Request::get("http://slow.test/").body(()).unwrap();
                streams.push(send.send_request(slow, true).unwrap());
            }
            // h2 itself ends a client that is faster than the edge accepts streams.
            bed.until_metric("tidegate_requests_in_flight 40").await;
            sleep(MOMENT).await;
            streams.into_iter().for_each(|(_, mut body)| body.send_reset(Reason::CANCEL));
            let mut asked: Vec<ResponseFuture> = Vec::new();
            for _ in 0..60 {
                asked.push(send.clone().ready().await.unwrap().send_request(get("/"), true).unwrap().0);
            }
            let answers = asked.into_iter().map(async |asked| {
                let mut answer = response(asked).await;
                rest(answer.body_mut()).await.unwrap();
                answer.status().as_u16()
            });
            assert!(join_all(answers).await.into_iter().all(|status| status == 200), "{driver:?}");
        }
        assert!(bed.metrics().contains(r#"tidegate_http2_connections_ended_total{reason="too-many-resets"} 0"#));
    }
}

#[tokio::test]
async fn a_client_that_waits_for_its_answers_is_served() {
    for driver in [Driver::Both, Driver::Pingora] {
        let upstream = Upstream::echo().await;
        let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
        let send = client(&bed, 64 << 10).await;
        for number in 0..600 {
            let mut send = send.clone().ready().await.unwrap();
            let mut answer = response(send.send_request(get("/"), true).unwrap().0).await;
            rest(answer.body_mut()).await.unwrap();
            assert_eq!(answer.status(), 200, "{driver:?}, request {number}");
        }
    }
}

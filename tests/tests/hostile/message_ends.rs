//! Requests over HTTP/2 whose bodies end in every way that the protocol has, with heads that lead to either driver:
//! each must be one message on the connection to an HTTP/1.1 endpoint, which the requests of other clients share.
//! Two ends of one message would give the next client an error, or the response to another one's request.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method, Request};
use tokio::time::{sleep, timeout};

use crate::edge::{Driver, Edge};
use crate::endpoint::Endpoint;
use crate::front::{Front, Proxy};
use crate::honest::{Honest, Tally};
use crate::streams::{ATTACKER, Streams};

/// The honest clients.
const CLIENTS: usize = 6;
/// The timeout for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Headers that choose the driver.
const HEADS: [(&str, &str); 4] =
    [("content-type", "application/grpc"), ("expect", "100-continue"), ("te", "trailers"), ("accept", "*/*")];

/// The pieces of a body, each in a DATA frame of its own, and whether trailers end it instead of the last piece.
const BODIES: [(&[&str], bool); 8] = [
    (&["0123456789", ""], false),
    (&[""], false),
    (&["0123456789"], false),
    (&["0123456789", "x", ""], false),
    (&["0123456789", "", "", ""], false),
    (&["0123456789"], true),
    (&["0123456789", ""], true),
    (&[], true),
];

/// The number of requests in one round.
const ROUND: usize = HEADS.len() * BODIES.len();

/// The rounds of the attack in one test.
#[allow(clippy::disallowed_methods, reason = "how long it runs comes from the environment")]
fn rounds() -> usize {
    std::env::var("MESSAGE_END_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Sends one request of each form to tenant `b`; returns the number of answers with 200.
pub(crate) async fn attack(address: SocketAddr) -> usize {
    let mut answered = 0;
    for head in HEADS {
        for body in BODIES {
            let Ok(mut streams) = Streams::connect(ATTACKER, address, 65_535).await else { continue };
            let sent = timeout(ANSWER_MAX, send(&mut streams, head, body)).await;
            answered += usize::from(matches!(sent, Ok(Some(200))));
        }
    }
    answered
}

/// Sends a request and returns the status of the answer.
async fn send(streams: &mut Streams, (name, value): (&str, &str), (pieces, trailers): (&[&str], bool)) -> Option<u16> {
    let request =
        Request::builder().method(Method::POST).uri("http://b.test/hostile").header(name, value).body(()).ok()?;
    let mut held = streams.send(request).await.ok()?;
    for (number, piece) in pieces.iter().enumerate() {
        let ends = number + 1 == pieces.len() && !trailers;
        held.body.send_data(Bytes::copy_from_slice(piece.as_bytes()), ends).ok()?;
        // The edge sees each frame alone.
        sleep(Duration::from_millis(3)).await;
    }
    if trailers {
        let mut fields = HeaderMap::new();
        fields.insert("x-sum", "1".parse().ok()?);
        held.body.send_trailers(fields).ok()?;
    }
    let response = held.response.await.ok()?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    while let Some(piece) = body.data().await {
        body.flow_control().release_capacity(piece.ok()?.len()).ok()?;
    }
    Some(status)
}

pub(crate) async fn no_end_of_a_body_puts_the_connection_of_an_endpoint_out_of_step(driver: Driver) {
    let b = Endpoint::honest("b").await;
    stays_in_step(driver, b.address()).await;
}

pub(crate) async fn no_end_of_a_body_puts_the_connection_of_nginx_out_of_step(driver: Driver) {
    let b = Endpoint::honest("b").await;
    let Some(nginx) = Front::start(Proxy::Nginx, &[("b.test", b.address())]).await else { return };
    stays_in_step(driver, nginx.http1).await;
}

/// Plays the attack beside honest clients of the same endpoint.
async fn stays_in_step(driver: Driver, endpoint: SocketAddr) {
    let edge = Edge::at(driver, &[("b", endpoint)], None).await;
    let over = AtomicBool::new(false);
    let attacks = async {
        let mut answered = 0;
        for _ in 0..rounds() {
            answered += attack(edge.http()).await;
        }
        over.store(true, Relaxed);
        answered
    };
    let traffic = join_all((0..CLIENTS).map(|_| async {
        let (mut client, mut tally) = (Honest::new(edge.http(), "b"), Tally::default());
        while !over.load(Relaxed) || tally.own == 0 && tally.wrong.is_empty() {
            tally.ask(&mut client).await;
        }
        tally
    }));
    let (answered, tallies) = tokio::join!(attacks, traffic);
    let mut tally = Tally::default();
    tallies.into_iter().for_each(|one| tally.merge(one));
    println!("{driver:?}: {answered} hostile requests answered, {} own answers of others", tally.own);
    assert!(tally.wrong.is_empty(), "wrong answers: {:#?}", tally.wrong);
    assert_eq!(answered, rounds() * ROUND, "hostile requests that were answered");
}

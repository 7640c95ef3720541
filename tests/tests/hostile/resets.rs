//! Streams that are reset just after their requests have gone to the endpoint.

use std::net::SocketAddr;
use std::time::Duration;

use h2::Reason;
use http::Method;
use tidegate_tests::moment;
use tokio::time::{sleep, timeout};

use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step};
use crate::honest::is_served;
use crate::streams::{ATTACKER, SLOW, Streams};

/// The number of streams of a burst, and their lifetime: long enough for a connection to the endpoint.
const BURST: usize = 100;
const LIFE: Duration = Duration::from_millis(12);
const ATTACK_MAX: Duration = Duration::from_secs(5);
/// The maximum number of connections to an endpoint that one client may cause.
const CONNECTIONS_MAX: usize = 700;

/// Opens bursts of streams and resets them until the connection ends or the time is over; returns their number, and the
/// end.
pub(crate) async fn attack(address: SocketAddr, time: Duration) -> (usize, Option<h2::Error>) {
    let (until, mut opened) = (moment() + time, 0);
    let Ok(mut streams) = Streams::connect(ATTACKER, address, 65_535).await else { return (0, None) };
    while moment() < until {
        let mut burst = Vec::with_capacity(BURST);
        for _ in 0..BURST {
            let Ok(held) = streams.open(&Method::GET, SLOW).await else { break };
            burst.push(held);
        }
        opened += burst.len();
        sleep(LIFE).await;
        for mut held in burst {
            held.body.send_reset(Reason::CANCEL);
        }
        if streams.end.is_finished() {
            break;
        }
    }
    let end = timeout(Duration::from_millis(500), &mut streams.end).await.ok();
    (opened, end.and_then(Result::ok).and_then(Result::err))
}

pub(crate) async fn resets_end_the_connection_with_enhance_your_calm(driver: Driver) {
    let (a, b) = (Endpoint::start(|_| vec![Step::Hold]).await, Endpoint::honest("b").await);
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    let ((opened, end), ()) = tokio::join!(attack(edge.http(), ATTACK_MAX), is_served(edge.http(), "b", 40));
    let connections = a.connections();
    println!("{driver:?}: {opened} streams, {connections} connections to the endpoint, {end:?}");
    // The client has sent more meanwhile. On a busy machine the TCP reset that this causes may overtake the frame.
    let calmed = end.as_ref().is_some_and(|end| {
        let told = end.is_go_away() && end.is_remote() && end.reason() == Some(Reason::ENHANCE_YOUR_CALM);
        let reset = [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::BrokenPipe];
        told || end.get_io().is_some_and(|error| reset.contains(&error.kind()))
    });
    assert!(calmed, "after {opened} streams the connection ended by {end:?}");
    assert!(connections <= CONNECTIONS_MAX, "{connections} connections to the endpoint");
}

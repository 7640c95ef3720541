//! A proxy in front of the edge that shares connections among all clients: a response that it finds complete must be
//! complete for the edge too, or the next client on that connection gets the rest.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use crate::codings::{CODINGS, TO_FULL, endpoint, request};
use crate::edge::{Driver, Edge};
use crate::endpoint::Endpoint;
use crate::front::{Front, Proxy};
use crate::honest::{Honest, Tally};
use crate::raw::Client;

/// The number of concurrent victims, more than the attackers who hold connections.
const VICTIMS: usize = 12;
/// The number of requests of each: for longer than the second response waits.
const ROUNDS: usize = 14;

pub(crate) async fn no_bytes_of_a_reach_b_through_nginx(driver: Driver) {
    no_bytes_of_a_reach_b(driver, Proxy::Nginx).await;
}

pub(crate) async fn no_bytes_of_a_reach_b_through_haproxy(driver: Driver) {
    no_bytes_of_a_reach_b(driver, Proxy::Haproxy).await;
}

async fn no_bytes_of_a_reach_b(driver: Driver, proxy: Proxy) {
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    let routes = [("a.test", edge.http()), ("b.test", edge.http())];
    let Some(front) = Front::start(proxy, &routes).await else { return };

    let attackers = (0..CODINGS.len()).map(|number| async move {
        let mut client = Client::connect(front.http1).await.unwrap();
        client.send(request(number, TO_FULL)).await.unwrap();
        // Up to the end that the front finds; the attacker then holds its own connection open.
        let (_, _) = client.rest(Duration::from_millis(100)).await;
        client
    });
    let attackers = join_all(attackers).await;

    let victims = (0..VICTIMS).map(|_| async {
        let (mut client, mut tally) = (Honest::new(front.http1, "b"), Tally::default());
        for _ in 0..ROUNDS {
            tally.add(client.ask_on_a_new_connection().await, Duration::ZERO);
            sleep(Duration::from_millis(100)).await;
        }
        tally
    });
    let mut tally = Tally::default();
    for victim in join_all(victims).await {
        tally.merge(victim);
    }
    drop(attackers);
    let asked = u64::try_from(VICTIMS * ROUNDS).unwrap();
    assert_eq!(tally.own, asked, "own answers of b through {}: {:#?}", proxy.program(), tally.wrong);
}

//! Places for connections: a client that holds all of them in silence does not keep others out.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::edge::{Driver, Edge};
use crate::endpoint::Endpoint;
use crate::raw::Client;

/// The limit of open files of the process, which leaves places for less than half as many connections.
const OPEN_FILES: u32 = 700;
/// Connections of the attacker: more than there are places.
const SILENT: usize = 700;
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// Connections that never asked, and connections that asked once, give way to those of another address.
pub(crate) async fn the_connection_idle_for_longest_gives_way(driver: Driver) {
    let b = Endpoint::honest("b").await;
    for asks_first in [false, true] {
        let edge = Edge::limited(driver, &[("b", &b)], Some(OPEN_FILES)).await;
        let mut held = Vec::with_capacity(SILENT);
        for _ in 0..SILENT {
            let Ok(mut client) = Client::connect_from(ATTACKER, edge.http()).await else { continue };
            let asked = !asks_first || client.ask("GET /first HTTP/1.1\r\nHost: b.test\r\n\r\n").await.is_ok();
            if asked {
                held.push(client);
            }
        }
        // A connection that is reset while it opens is not held; one that was closed afterwards is.
        let (first, last) = (held.remove(0), held.pop().expect("a held connection"));
        let mut refused = Vec::new();
        for number in 0..10 {
            if let Err(error) = ask_from_elsewhere(&edge, number).await {
                refused.push(error);
            }
        }
        assert!(refused.is_empty(), "asks first: {asks_first}: {} of 10 not served: {refused:#?}", refused.len());
        assert!(ended(first).await, "asks first: {asks_first}: the connection idle for longest is open");
        assert!(!ended(last).await, "asks first: {asks_first}: the connection idle for the shortest time has gone");
    }
}

async fn ask_from_elsewhere(edge: &Edge, number: u32) -> Result<(), String> {
    let mut client = Client::connect_from(OTHER, edge.http()).await?;
    let response = client.ask(format!("GET /{number} HTTP/1.1\r\nHost: b.test\r\n\r\n")).await?;
    if response.text() == format!("b /{number}") { Ok(()) } else { Err(response.head) }
}

async fn ended(mut client: Client) -> bool {
    let (_, ended) = client.rest(Duration::from_millis(200)).await;
    ended
}

//! Places for connections: a client that holds all of them silently does not keep others out.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::edge::{Driver, Edge};
use crate::endpoint::Endpoint;
use crate::health::are_prompt;
use crate::honest::HONEST;
use crate::raw::Client;
use crate::streams::ATTACKER;

/// The limit of open files of the process, which leaves places for less than half as many connections.
const OPEN_FILES: u32 = 700;
/// The number of the attacker's connections: more than there are places.
const SILENT: usize = 700;
/// Kubelets request a health page with a deadline of a second.
const PAGE_MAX: Duration = Duration::from_secs(1);
/// The number of addresses of a distributed attacker.
const ADDRESSES: u8 = 100;

/// Takes a place on the edge for each address in turn, until the attacker has tried all. A connection that is refused
/// while it opens is not held; one that is closed afterwards is.
async fn silent(edge: &Edge, asks_first: bool, sources: impl Iterator<Item = IpAddr>) -> Vec<Client> {
    let mut held = Vec::with_capacity(SILENT);
    for source in sources.take(SILENT) {
        let Ok(mut client) = Client::connect_from(source, edge.http()).await else { continue };
        let open = !asks_first || client.ask("GET /first HTTP/1.1\r\nHost: b.test\r\n\r\n").await.is_ok();
        if open {
            held.push(client);
        }
    }
    held
}

/// Ten connections of another address are served.
async fn others_are_served(edge: &Edge, asks_first: bool) {
    let mut refused = Vec::new();
    for number in 0..10 {
        if let Err(error) = ask_from_elsewhere(edge, number).await {
            refused.push(error);
        }
    }
    assert!(refused.is_empty(), "asks first: {asks_first}: {} of 10 not served: {refused:#?}", refused.len());
}

/// Neither connections that never send a request nor connections that sent one keep those of another address out.
pub(crate) async fn one_silent_address_does_not_keep_others_out(driver: Driver) {
    let b = Endpoint::honest("b").await;
    for asks_first in [false, true] {
        let edge = Edge::limited(driver, &[("b", &b)], Some(OPEN_FILES)).await;
        let _held = silent(&edge, asks_first, std::iter::repeat(ATTACKER)).await;
        others_are_served(&edge, asks_first).await;
        are_prompt(&edge, PAGE_MAX).await;
    }
}

/// If many addresses hold all places, the connection that has been idle for longest is closed for a new one.
pub(crate) async fn the_connection_idle_for_longest_gives_way(driver: Driver) {
    let b = Endpoint::honest("b").await;
    for asks_first in [false, true] {
        let edge = Edge::limited(driver, &[("b", &b)], Some(OPEN_FILES)).await;
        let sources = (1..=ADDRESSES).map(|number| IpAddr::V4(Ipv4Addr::new(127, 0, 1, number))).cycle();
        let mut held = silent(&edge, asks_first, sources).await;
        others_are_served(&edge, asks_first).await;
        are_prompt(&edge, PAGE_MAX).await;
        let (first, last) = (held.remove(0), held.pop().expect("a held connection"));
        assert!(ended(first).await, "asks first: {asks_first}: the connection idle for longest is open");
        assert!(!ended(last).await, "asks first: {asks_first}: the connection idle for the shortest time has gone");
    }
}

async fn ask_from_elsewhere(edge: &Edge, number: u32) -> Result<(), String> {
    let mut client = Client::connect_from(HONEST, edge.http()).await?;
    let response = client.ask(format!("GET /{number} HTTP/1.1\r\nHost: b.test\r\n\r\n")).await?;
    if response.text() == format!("b /{number}") { Ok(()) } else { Err(response.head) }
}

async fn ended(mut client: Client) -> bool {
    let (_, ended) = client.rest(Duration::from_millis(200)).await;
    ended
}

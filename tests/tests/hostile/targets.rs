//! Requests that two servers could interpret differently are refused before any endpoint sees them.

use crate::codings::TO_FULL;
use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, ordinary};
use crate::honest::is_served;
use crate::raw::{Client, shown};

/// Requests for the wrong target.
const TARGETS: [&str; 8] =
    ["/s x", "/s\x01", "/s\x7f", "/s\tx", "/s#x", "http://a.test/s?#x", "/x/..;/admin", "/x/..\\admin"];
/// Lengths that a server with signed 64-bit numbers could misread.
const LENGTHS: [&str; 4] =
    ["9999999999999999999", "1000000000000000000", "9223372036854775808", "18446744073709551615"];

/// All of these requests, by the driver for plain requests and by the Pingora driver.
pub(crate) fn requests() -> Vec<String> {
    [targets(), lengths()].concat()
}

fn targets() -> Vec<String> {
    let one = |target: &str| ["", TO_FULL].map(|more| format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n"));
    TARGETS.iter().flat_map(|target| one(target)).collect()
}

fn lengths() -> Vec<String> {
    let one = |length: &str| {
        ["", TO_FULL].map(|more| format!("POST /l HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n{more}\r\n"))
    };
    LENGTHS.iter().flat_map(|length| one(length)).collect()
}

/// Checks that each request is 400, and that the endpoint has seen none of them.
async fn check(driver: Driver, requests: Vec<String>) {
    let mut a = Endpoint::start(|_| vec![ordinary("reached")]).await;
    let b = Endpoint::honest("b").await;
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    let mut complaints = Vec::new();
    for request in requests {
        let mut client = Client::connect(edge.http()).await.unwrap();
        let response = client.ask(&request).await.unwrap_or_default();
        if response.status() != 400 {
            complaints.push(format!("{}: {}", shown(request.as_bytes()), shown(response.head.as_bytes())));
        }
        is_served(edge.http(), "b", 1).await;
    }
    complaints.extend(a.heads().iter().map(|head| format!("the endpoint saw {}", shown(head.as_bytes()))));
    assert!(complaints.is_empty(), "not 400:\n{}", complaints.join("\n"));
}

pub(crate) async fn ambiguous_targets_are_400(driver: Driver) {
    check(driver, targets()).await;
}

/// Lengths of more than 18 digits are refused.
pub(crate) async fn long_content_lengths_are_400(driver: Driver) {
    check(driver, lengths()).await;
}

//! Transfer codings of responses: anything but the single word `chunked` makes the end of a response ambiguous, and
//! bytes after an ambiguous end can become another client's response.

use std::time::Duration;

use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step, path, send};
use crate::honest::is_served;
use crate::raw::{Client, shown};

/// The header lines that are not the single word `chunked`.
pub(crate) const CODINGS: [&str; 7] = [
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: chunked,x\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked,\r\n",
    "Transfer-Encoding: chunked;q=1\r\n",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: identity\r\n",
];
/// The second response, which no request asked for.
pub(crate) const SMUGGLED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nX-Smuggled: 1\r\n\r\nSMUGGLED";
/// A header line that leaves a request to the Pingora driver.
pub(crate) const TO_FULL: &str = "Connection: x\r\n";

/// The request for the coding with this number.
pub(crate) fn request(coding: usize, more: &str) -> String {
    format!("GET /coding/{coding} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n")
}

/// The endpoint's side: a response whose end depends on the reader, and another one a second later.
pub(crate) fn script(head: &str) -> Option<Vec<Step>> {
    let number: usize = path(head).strip_prefix("/coding/")?.parse().ok()?;
    let first = format!("HTTP/1.1 200 OK\r\n{}\r\n2\r\nok\r\n0\r\n\r\n", CODINGS.get(number)?);
    Some(vec![send(first), Step::Wait(Duration::from_secs(1)), send(SMUGGLED), Step::Hold])
}

/// A hostile endpoint with this script alone.
pub(crate) async fn endpoint() -> Endpoint {
    Endpoint::start(|head| script(head).unwrap_or_else(|| vec![Step::Close])).await
}

/// The edge does not forward a response that it cannot frame, and no bytes follow its own. The Pingora driver ends the
/// client's connection as well.
pub(crate) async fn an_unknown_coding_is_502_and_nothing_follows(driver: Driver) {
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    let asked = CODINGS.iter().enumerate().flat_map(|(number, _)| ["", TO_FULL].map(|more| (number, more)));
    let checks = asked.map(async |(number, more)| {
        let coding = CODINGS[number].escape_default();
        let mut client = Client::connect(edge.http()).await.unwrap();
        let response = client.ask(request(number, more)).await.unwrap();
        let (rest, ended) = client.rest(Duration::from_secs(3)).await;
        let right = response.status() == 502 && rest.is_empty() && (ended || driver == Driver::Both);
        (!right).then(|| {
            let rest =
                if ended { format!("then {} and the end", shown(&rest)) } else { format!("then {}", shown(&rest)) };
            format!("{coding} {}: {}{}, {rest}", more.trim(), response.head.escape_default(), response.text())
        })
    });
    let complaints: Vec<String> = futures::future::join_all(checks).await.into_iter().flatten().collect();
    assert!(complaints.is_empty(), "not 502 alone:\n{}", complaints.join("\n"));
    is_served(edge.http(), "b", 10).await;
}

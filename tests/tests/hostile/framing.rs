//! The framing of responses: the edge generates its own, whatever the endpoint's, and refuses a response of ambiguous
//! length (RFC 9110 section 8.6, RFC 9112 sections 6 and 2.3).

use std::time::Duration;

use futures::future::join_all;

use crate::codings::TO_FULL;
use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step, path, send};
use crate::honest::is_served;
use crate::raw::{Client, Response, shown, values};

/// Responses that are forwarded without the framing that they must not have.
const BODILESS: [(&str, &str); 8] = [
    ("204 with a length", "HTTP/1.1 204 No Content\r\nContent-Length: 61\r\n\r\n"),
    ("204 with a coding", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 61\r\n\r\n"),
    ("304 with a coding", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
    (
        "103 with a length",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 61\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
    (
        "103 with a coding",
        "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
    ("HEAD with a length", "HTTP/1.1 200 OK\r\nContent-Length: 61\r\n\r\n"),
    ("HEAD with a coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
];

/// Responses with an ambiguous end.
const DOUBTFUL: [(&str, &str); 9] = [
    (
        "1.0 with a coding",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ),
    ("chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    ("gzip, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    (
        "two lines of codings",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ),
    ("a coding and a length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"),
    ("a list of one length", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok"),
    ("two lines of one length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"),
    ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
    ("a signed length", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok"),
];

/// Responses of other versions that are otherwise valid.
const VERSIONS: [(&str, &str); 2] = [
    ("1.0 with a length", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    ("1.1 with a coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
];

/// The endpoint's side.
pub(crate) fn script(head: &str) -> Option<Vec<Step>> {
    let (table, number) = path(head).strip_prefix("/framing/")?.split_once('/')?;
    let number: usize = number.parse().ok()?;
    let response = match table {
        "bodiless" => BODILESS.get(number)?.1,
        "doubtful" => DOUBTFUL.get(number)?.1,
        _ => VERSIONS.get(number)?.1,
    };
    Some(vec![send(response)])
}

/// The paths of all cases.
pub(crate) fn paths() -> impl Iterator<Item = String> {
    let table = |name: &'static str, length| (0..length).map(move |number| format!("/framing/{name}/{number}"));
    table("bodiless", BODILESS.len()).chain(table("doubtful", DOUBTFUL.len())).chain(table("version", VERSIONS.len()))
}

/// Requests each case, from the driver for plain requests and from the Pingora driver, and collects complaints about
/// the response and the bytes after it.
async fn check(driver: Driver, table: &str, cases: &[(&str, &str)], right: fn(&Response) -> bool) {
    let a = Endpoint::start(|head| script(head).unwrap_or_else(|| vec![Step::Close])).await;
    let b = Endpoint::honest("b").await;
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    let asked = cases.iter().enumerate().flat_map(|case| ["", TO_FULL].map(|more| (case, more)));
    let checks = asked.map(async |((number, (name, _)), more)| {
        let method = if name.starts_with("HEAD") { "HEAD" } else { "GET" };
        let request = format!("{method} /framing/{table}/{number} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n");
        let mut client = Client::connect(edge.http()).await.unwrap();
        let response = client.ask(request).await;
        let (rest, _) = client.rest(Duration::from_millis(50)).await;
        let (interim, head, text) = match &response {
            Ok(response) if right(response) && rest.is_empty() => return None,
            Ok(response) => (response.interim.concat(), response.head.clone(), response.text()),
            Err(error) => (String::new(), String::new(), error.clone()),
        };
        let head = (interim + &head).escape_default().to_string();
        Some(format!("{name} {}: {head}{text}, then {:?}", more.trim(), shown(&rest)))
    });
    let (complaints, ()) = tokio::join!(join_all(checks), is_served(edge.http(), "b", 40));
    let complaints: Vec<String> = complaints.into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Neither an interim response nor a 204 has a length or a coding.
pub(crate) async fn bodiless_responses_are_sent_without_framing(driver: Driver) {
    check(driver, "bodiless", &BODILESS, |response| {
        let unframed =
            |head: &str| values(head, "content-length").is_empty() && values(head, "transfer-encoding").is_empty();
        let last = response.status() != 204 || unframed(&response.head);
        matches!(response.status(), 200 | 204 | 304) && last && response.interim.iter().all(|head| unframed(head))
    })
    .await;
}

pub(crate) async fn doubtful_lengths_and_codings_are_502(driver: Driver) {
    check(driver, "doubtful", &DOUBTFUL, |response| response.status() == 502).await;
}

/// The version is that of the edge (RFC 9110 section 2.5), not that of the endpoint.
pub(crate) async fn the_status_line_says_http_1_1(driver: Driver) {
    check(driver, "version", &VERSIONS, |response| {
        response.head.starts_with("HTTP/1.1 200 ") && response.text() == "ok"
    })
    .await;
}

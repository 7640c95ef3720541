//! The `Date` of responses: the endpoint's passes, and one is added where it is missing (RFC 9110 section 6.6.1).

use http::{HeaderName, HeaderValue, Response};
use tidegate_config::model::{AppProtocol, Filter, HeaderEdits, ResponseEdits};
use tidegate_proxy::Driver;
use tokio::net::TcpListener;

use super::bed::{Bed, Model, route};
use super::streams::{client, get, response};
use super::upstream::{Reply, Upstream};

/// A date of an endpoint, and one that a filter sets.
const SENT: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const OWN: &str = "Fri, 02 Jan 2026 00:00:00 GMT";

/// An endpoint in HTTP/1.1 whose responses have as many dates as the path says.
async fn http1() -> Upstream {
    Upstream::start(|seen| {
        let count = seen.line.bytes().filter(|byte| *byte == b'd').count();
        let early = if seen.line.contains("hint") { "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" } else { "" };
        let status = if seen.line.contains("304") { "304 Not Modified" } else { "200 OK\r\nContent-Length: 2" };
        let body = if seen.line.contains("304") { "" } else { "ok" };
        let dates = format!("Date: {SENT}\r\n").repeat(count);
        Reply::Send(format!("{early}HTTP/1.1 {status}\r\n{dates}\r\n{body}"))
    })
    .await
}

/// The same in HTTP/2.
async fn http2() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((asked, mut respond))) = connection.accept().await {
                    let mut head = Response::new(());
                    for _ in asked.uri().path().bytes().filter(|byte| *byte == b'd') {
                        head.headers_mut().append("date", HeaderValue::from_static(SENT));
                    }
                    respond.send_response(head, true).unwrap();
                }
            });
        }
    });
    address
}

/// The dates of the final response over HTTP/1.1 and over HTTP/2.
async fn dates(bed: &Bed, host: &str, path: &str) -> [Vec<String>; 2] {
    let answer = bed.get(host, path, "Connection: close\r\n").await;
    // An interim response comes first.
    let all = answer.raw + &answer.body;
    assert!(!all.contains("kept"), "{all}");
    let lines = all.lines().filter_map(|line| line.split_once(": "));
    let one = lines.filter(|(name, _)| name.eq_ignore_ascii_case("date")).map(|(_, value)| value.to_owned()).collect();
    let mut request = get(path);
    *request.uri_mut() = format!("http://{host}{path}").parse().unwrap();
    let (answered, _) = client(bed, 64 << 10).await.send_request(request, true).unwrap();
    let head = response(answered).await;
    let two = head.headers().get_all("date").iter().map(|date| date.to_str().unwrap().to_owned()).collect();
    [one, two]
}

#[tokio::test]
async fn the_date_of_an_endpoint_passes_and_a_missing_one_is_added() {
    let (plain, multiplexed) = (http1().await, http2().await);
    for driver in [Driver::Both, Driver::Pingora] {
        let dated = HeaderEdits {
            set: [(HeaderName::from_static("date"), HeaderValue::from_static(OWN))].into(),
            ..HeaderEdits::default()
        };
        let mut filtered = route("plain", AppProtocol::Http);
        filtered.filters = [Filter::ResponseHeaders(ResponseEdits::proxied(dated))].into();
        let model = Model::default()
            .route("a.test", route("plain", AppProtocol::Http))
            .route("b.test", route("multiplexed", AppProtocol::H2c))
            .route("c.test", filtered)
            .backend("plain", &[plain.address])
            .backend("multiplexed", &[multiplexed]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        for (host, path, want) in [
            ("a.test", "/d", &[SENT][..]),
            ("a.test", "/d/304", &[SENT]),
            ("a.test", "/d/hint", &[SENT]),
            ("a.test", "/dd", &[SENT, SENT]),
            ("b.test", "/d", &[SENT]),
            ("b.test", "/dd", &[SENT, SENT]),
            ("c.test", "/d", &[OWN]),
            ("c.test", "/", &[OWN]),
        ] {
            for dates in dates(&bed, host, path).await {
                assert_eq!(dates, want, "{driver:?} {host}{path}");
            }
        }
        // The last one is an answer of the edge.
        for (host, path) in [("a.test", "/"), ("a.test", "/304"), ("b.test", "/"), ("none.test", "/d")] {
            for dates in dates(&bed, host, path).await {
                assert!(dates.len() == 1 && dates[0] != SENT, "{driver:?} {host}{path}: {dates:?}");
            }
        }
    }
}

/// A request with two hosts is refused before a driver has it.
#[tokio::test]
async fn a_refusal_of_a_malformed_request_has_a_date() {
    let bed = Bed::start(Model::to(&[http1().await.address])).await;
    let mut request = get("/");
    request.headers_mut().insert("host", HeaderValue::from_static("b.test"));
    let (answered, _) = client(&bed, 64 << 10).await.send_request(request, true).unwrap();
    let head = response(answered).await;
    assert_eq!((head.status().as_u16(), head.headers().get_all("date").iter().count()), (400, 1));
}

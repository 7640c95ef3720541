//! Requests that two parsers could interpret differently: every row is either refused, or reaches the endpoint in one
//! form only.

use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::bed::{Bed, Model, answer};
use super::upstream::Upstream;

/// The expected outcome of a row.
enum Want {
    /// An answer with this status; nothing reaches the endpoint.
    Refused(u16),
    /// The endpoint sees these header lines (`name: values`), and no other lines with their names.
    Sees(&'static [(&'static str, &'static str)]),
}

use Want::{Refused, Sees};

const ROWS: &[(&str, Want)] = &[
    // Hosts.
    ("GET / HTTP/1.1\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: u@a.test\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test:99999\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", Refused(400)),
    ("GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", Sees(&[("host", "a.test")])),
    ("GET / HTTP/1.0\r\n\r\n", Refused(404)),
    ("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", Sees(&[("host", "a.test")])),
    // Lengths.
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3, 3\r\n\r\nabc", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +3\r\n\r\nabc", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 03\r\n\r\nabc", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 00\r\n\r\n", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000000000000000\r\n\r\nabc", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9999999999999999999\r\n\r\nabc", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0000000000000000003\r\n\r\nabc", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Refused(501)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", Refused(400)),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", Refused(400)),
    ("POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused(400)),
    (
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused(400),
    ),
    (
        "POST / HTTP/1.1\r\nHost: a.test\r\ntransfer-encoding: chunked\r\nX-A: 1\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        Refused(400),
    ),
    (
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Sees(&[("content-length", ""), ("transfer-encoding", "chunked")]),
    ),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc", Sees(&[("content-length", "3")])),
    // Header lines.
    ("GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\r\n 2\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\nContent-Length: 44\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\n\n", Refused(400)),
    ("GET / HTTP/1.1\nHost: a.test\n\n", Refused(400)),
    ("\r\nGET / HTTP/1.1\r\nHost: a.test\nX-A: 1\r\n\r\n", Refused(400)),
    ("\r\n\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", Sees(&[("host", "a.test")])),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\0\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\r2\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: x-forwarded-for\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close, X-Real-IP\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: a,b,c,d,e,f,g,h,i,j,k\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: X-Own\r\nX-Own: 1\r\n\r\n", Sees(&[("x-own", "")])),
    // Request lines.
    ("GET /s x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /?s x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /s\x01 HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /s\tx HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /s\0 HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /s\x7f HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /  HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1 \r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /\r\n\r\n", Refused(400)),
    ("GET /s#x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /s?a=b#x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /# HTTP/1.0\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET http://a.test/s#x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET http://a.test#x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("OPTIONS *#x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /s%23x HTTP/1.1\r\nHost: a.test\r\n\r\n", Sees(&[("host", "a.test")])),
    ("GET /s%20x?%01 HTTP/1.1\r\nHost: a.test\r\n\r\n", Sees(&[("host", "a.test")])),
    // Methods and paths.
    ("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", Refused(405)),
    ("TRACE / HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(405)),
    ("OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /../x HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /%00 HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /%zz HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /x/..;/admin HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /x/%2e%2E;a=b/admin HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /x/..\\admin HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /x%5c..%5cadmin HTTP/1.1\r\nHost: a.test\r\n\r\n", Refused(400)),
    ("GET /x;a/b..c/a%5cb HTTP/1.1\r\nHost: a.test\r\n\r\n", Sees(&[("host", "a.test")])),
];

#[tokio::test]
async fn ambiguous_requests_are_refused_or_normalised() {
    for driver in [Driver::Both, Driver::Pingora] {
        let mut upstream = Upstream::echo().await;
        let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
        for (request, want) in ROWS {
            let answer = bed.ask(request).await;
            match want {
                Refused(status) => {
                    assert_eq!(answer.status, *status, "{driver:?}: {request:?}");
                    assert!(upstream.is_quiet(), "{driver:?}: {request:?} reached the endpoint");
                }
                Sees(headers) => {
                    assert_eq!(answer.status, 200, "{driver:?}: {request:?}");
                    let seen = upstream.seen().await;
                    for (name, want) in *headers {
                        assert_eq!(seen.header(name), *want, "{driver:?}: {name} of {request:?}");
                    }
                }
            }
        }
        bed.until_metric(r#"tidegate_heads_refused_total{reason="bare-line-feed"} 6"#).await;
        bed.until_metric(r#"tidegate_heads_refused_total{reason="malformed-request-line"} 16"#).await;
    }
}

#[tokio::test]
async fn too_many_header_lines_or_bytes_are_refused() {
    let upstream = Upstream::echo().await;
    let bed = Bed::with(Model::to(&[upstream.address]), |options| {
        options.client.head_lines_max = 16;
        options.client.head_bytes_max = 8 * 1024;
    })
    .await;
    assert_eq!(bed.get("a.test", "/", &"X-A: 1\r\n".repeat(15)).await.status, 200);
    assert_eq!(bed.get("a.test", "/", &"X-A: 1\r\n".repeat(16)).await.status, 431);
    assert_eq!(bed.get("a.test", "/", &format!("X-A: {}\r\n", "x".repeat(7 * 1024))).await.status, 200);
    assert_eq!(bed.get("a.test", "/", &format!("X-A: {}\r\n", "x".repeat(8 * 1024))).await.status, 431);
}

#[tokio::test]
async fn bytes_after_a_refused_head_are_not_read_as_a_request() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    for lengths in [
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "X-A: 1\nContent-Length: 5",
    ] {
        let mut stream = bed.connect().await;
        let smuggled = format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\n{lengths}\r\n\r\n0\r\n\r\n\
            GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"
        );
        stream.write_all(smuggled.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        // A reset instead of a close is accepted too.
        drop(tokio::time::timeout(super::bed::PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it stays open"));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.matches("HTTP/1.1").count() <= 1 && !text.contains(" 200 "), "{text}");
        assert!(upstream.is_quiet());
    }
}

#[tokio::test]
async fn both_drivers_refuse_malformed_chunks() {
    let upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    // The second line makes a request one for the Pingora driver.
    for line in ["", "Connection: x\r\n"] {
        let post =
            |body: &str| format!("POST / HTTP/1.1\r\nHost: a.test\r\n{line}Transfer-Encoding: chunked\r\n\r\n{body}");
        for body in ["\r\n2b\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", "2;\nxx\r\nbo\r\n0\r\n\r\n"] {
            assert_eq!(bed.ask(&post(body)).await.status, 400, "{line:?} {body:?}");
            let mut late = bed.connect().await;
            late.write_all(post("").as_bytes()).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            late.write_all(body.as_bytes()).await.unwrap();
            assert_eq!(answer(&mut late).await.status, 400, "{line:?} {body:?}, late");
        }
        assert_eq!(bed.ask(&post("2;x=y\r\nbo\r\n0\r\nt: v\r\n\r\n")).await.status, 200, "{line:?}");
    }
    bed.until_metric(r#"tidegate_requests_by_driver_total{driver="pingora"} 5"#).await;
}

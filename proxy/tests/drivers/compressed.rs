//! Compressed responses, and responses that resemble them and are not compressed, for clients with and without support.

use super::case::Case;
use super::responses::reply;

/// Request headers about compression.
const ASKED: &[&str] = &[
    "Accept-Encoding: gzip, deflate, br\r\n",
    "",
    "Accept-Encoding: gzip;q=0, *\r\n",
    "Accept-Encoding: *;q=0.5\r\nVia: 1.1 cache\r\n",
    "Accept-Encoding: gzip\r\nCache-Control: no-transform\r\n",
    "Accept-Encoding: gzip\r\nUser-Agent: Mozilla/4.0 (compatible; MSIE 6.0)\r\n",
];

/// Further response headers.
const SAID: &[&str] = &[
    "Content-Type: text/html\r\n",
    "Content-Type: text/plain; charset=utf-8\r\nETag: \"x\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\n",
    "Content-Type: TEXT/HTML\r\nETag: W/\"x\"\r\nVary: Accept-Encoding\r\nContent-Encoding: identity\r\n",
    "Content-Type: image/png\r\nETag: \"x\"\r\n",
    "Content-Type: text/html\r\nContent-Encoding: br\r\n",
    "Content-Type: text/html\r\nCache-Control: public, no-transform\r\n",
    "Content-Type: text/html\r\nContent-Range: bytes 0-1/5\r\n",
    "Content-Type: text/html\r\nContent-Digest: sha-256=:AAAA:\r\n",
    "",
];

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let text = "over and over again, ".repeat(100);
    for asked in ASKED {
        for said in SAID {
            for (how, framed) in framed(&text) {
                let name = format!("compressed or not: {asked:?} answered {said:?}, {how}");
                let answer = format!("HTTP/1.1 200 OK\r\n{said}{framed}");
                cases.push(Case::get(name, "z.test", "/a", asked).native().answered(reply(&answer)).fresh());
            }
        }
    }
    let (asked, said) = (ASKED[0], SAID[0]);
    let get = |name: String, answer: String| Case::get(name, "z.test", "/a", asked).native().answered(reply(&answer));
    for (status, length) in [(200, 19), (200, 20), (403, 30), (404, 30), (500, 30), (201, 30), (203, 30)] {
        let body = "x".repeat(length);
        let answer = format!("HTTP/1.1 {status} Some\r\n{said}Content-Length: {length}\r\n\r\n{body}");
        cases.push(get(format!("compressed or not: {status} of {length} bytes"), answer));
    }
    for size in [1000_u64, 65_536, 300_000] {
        // The body compresses a little.
        let body: String =
            (0..size).map(|at| char::from(b'a' + u8::try_from((at * at / 7 + at / 300) % 23).unwrap_or(0))).collect();
        for (how, framed) in framed(&body) {
            cases.push(
                get(format!("compressed: {size} bytes, {how}"), format!("HTTP/1.1 200 OK\r\n{said}{framed}")).fresh(),
            );
        }
    }
    for framed in [
        "Content-Length: 100\r\n\r\nhello{pause}hello{close}",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{pause}5\r\nhello\r\n{close}",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx{close}",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "\r\n{close}",
        "\r\nhello{pause}{reset}",
    ] {
        cases.push(get(format!("compressed: {framed:?}"), format!("HTTP/1.1 200 OK\r\n{said}{framed}")).fresh());
    }
    for lines in ["Connection: close\r\n", "Connection: keep-alive\r\n"] {
        let old = format!("GET /a HTTP/1.0\r\nHost: z.test\r\n{asked}{lines}\r\n");
        let answer = format!("HTTP/1.1 200 OK\r\n{said}Content-Length: 2100\r\n\r\n{text}");
        cases.push(Case::new(format!("compressed: over HTTP/1.0, {lines:?}"), old).answered(reply(&answer)).fresh());
    }
    let head = format!("HEAD /a HTTP/1.1\r\nHost: z.test\r\n{asked}\r\n");
    for length in [19, 2100] {
        let answer = format!("HTTP/1.1 200 OK\r\n{said}Content-Length: {length}\r\n\r\n");
        let case = Case::new(format!("compressed or not: HEAD of {length} bytes"), head.clone()).native();
        cases.push(case.answered(reply(&answer)));
    }
    for asked in ASKED {
        for said in SAID {
            for (method, status, framed) in [
                ("HEAD", 200, "Content-Length: 2100\r\n"),
                ("HEAD", 200, "Transfer-Encoding: chunked\r\n"),
                ("HEAD", 200, ""),
                ("GET", 304, ""),
                ("GET", 304, "Content-Length: 2100\r\n"),
                ("HEAD", 304, ""),
            ] {
                let name = format!("compressed or not: {method} {asked:?} answered {status} {said:?}, {framed:?}");
                let asking = format!("{method} /a HTTP/1.1\r\nHost: z.test\r\n{asked}\r\n");
                let answer = format!("HTTP/1.1 {status} Some\r\n{said}{framed}\r\n");
                cases.push(Case::new(name, asking).native().answered(reply(&answer)).fresh());
            }
        }
    }
    cases
}

/// A body in every framing.
fn framed(body: &str) -> [(&'static str, String); 4] {
    let length = body.len();
    let (first, rest) = body.split_at(length / 2);
    [
        ("counted", format!("Content-Length: {length}\r\n\r\n{body}")),
        ("chunked", format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n")),
        ("in two", format!("Content-Length: {length}\r\n\r\n{first}{{pause}}{rest}")),
        ("closed", format!("\r\n{body}{{close}}")),
    ]
}

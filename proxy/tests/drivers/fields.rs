//! Headers that a proxy must interpret, valid and invalid: framing, hop-by-hop headers, and headers that a client may
//! forge.

use super::case::Case;

/// Lines that frame a body, and whether they are unambiguous. Each is tried with several bodies.
pub const FRAMINGS: &[(&str, bool)] = &[
    ("Content-Length: 5\r\n", true),
    ("Content-Length: 0\r\n", true),
    ("content-length: 5\r\n", true),
    ("Content-Length:5\r\n", true),
    ("Content-Length:  5 \r\n", true),
    ("Content-Length: 05\r\n", false),
    ("Content-Length: 0000000000000000000000005\r\n", false),
    ("Content-Length: +5\r\n", false),
    ("Content-Length: -5\r\n", false),
    ("Content-Length: 5, 5\r\n", false),
    ("Content-Length: 5,6\r\n", false),
    ("Content-Length: 5;x\r\n", false),
    ("Content-Length: 0x5\r\n", false),
    ("Content-Length: 5.0\r\n", false),
    ("Content-Length: five\r\n", false),
    ("Content-Length: \r\n", false),
    ("Content-Length: 5 5\r\n", false),
    ("Content-Length: 00\r\n", false),
    ("Content-Length: 1000000000000000000\r\n", false),
    ("Content-Length: 9223372036854775808\r\n", false),
    ("Content-Length: 18446744073709551616\r\n", false),
    ("Content-Length: 99999999999999999999\r\n", false),
    ("Content-Length: 5\r\nContent-Length: 5\r\n", false),
    ("Content-Length: 5\r\nContent-Length: 6\r\n", false),
    ("Content-Length : 5\r\n", false),
    ("Content-Length: 5\r\n 6\r\n", false),
    ("Content_Length: 5\r\n", false),
    ("Transfer-Encoding: chunked\r\n", true),
    ("transfer-encoding: CHUNKED\r\n", false),
    ("Transfer-Encoding:chunked\r\n", true),
    ("Transfer-Encoding: \tchunked \r\n", false),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", false),
    ("Transfer-Encoding: chunked, chunked\r\n", false),
    ("Transfer-Encoding: gzip, chunked\r\n", false),
    ("Transfer-Encoding: gzip\r\n", false),
    ("Transfer-Encoding: identity\r\n", false),
    ("Transfer-Encoding: chunked, identity\r\n", false),
    ("Transfer-Encoding: xchunked\r\n", false),
    ("Transfer-Encoding: chunked;q=1\r\n", false),
    ("Transfer-Encoding: \"chunked\"\r\n", false),
    ("Transfer-Encoding: \r\n", false),
    ("Transfer-Encoding: ,chunked\r\n", false),
    ("Transfer-Encoding : chunked\r\n", false),
    ("Transfer-Encoding:\r\n chunked\r\n", false),
    ("Transfer-Encoding: chun\u{0}ked\r\n", false),
    ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", false),
    ("Transfer-Encoding: chunked\r\nContent-Length: 15\r\n", false),
    ("Content-Length: 5\r\nTransfer-Encoding: identity\r\n", false),
    ("Transfer_Encoding: chunked\r\n", false),
    ("X-Transfer-Encoding: chunked\r\n", true),
];

/// Bodies for them: five bytes, chunks, none.
const BODIES: &[&str] = &["hello", "5\r\nhello\r\n0\r\n\r\n", ""];

/// Header lines about the connection, and whether they are unambiguous.
pub const CONNECTIONS: &[(&str, bool)] = &[
    ("Connection: close\r\n", true),
    ("Connection: keep-alive\r\n", true),
    ("connection: Keep-Alive\r\n", true),
    ("Connection: CLOSE\r\n", true),
    ("Connection:\r\n", false),
    ("Connection: close, x\r\n", false),
    ("Connection: keep-alive, close\r\n", false),
    ("Connection: keep-alive\r\nConnection: close\r\n", false),
    ("Connection: x-own\r\nX-Own: 1\r\n", false),
    ("Connection: X-OWN , close\r\nx-own: 1\r\nX-Own: 2\r\n", false),
    ("Connection: host\r\n", false),
    ("Connection: x-forwarded-for\r\nX-Forwarded-For: 1.1.1.1\r\n", false),
    ("Connection: x-request-id\r\nX-Request-Id: kept\r\n", false),
    ("Connection: content-length\r\nContent-Length: 0\r\n", false),
    ("Connection: transfer-encoding\r\n", false),
    ("Connection: cdn-loop\r\nCDN-Loop: other\r\n", false),
    ("Connection: authorization\r\nAuthorization: x\r\n", false),
    ("Connection: cookie, , te\r\nCookie: x\r\n", false),
    ("Connection: upgrade\r\n", false),
    ("Connection: \"close\"\r\n", false),
    ("Keep-Alive: timeout=5\r\n", false),
    ("Keep-Alive: timeout=5\r\nConnection: keep-alive\r\n", false),
    ("Proxy-Connection: keep-alive\r\n", false),
    ("Proxy-Connection: close\r\n", false),
    ("Proxy-Authorization: Basic eDp5\r\n", false),
    ("Proxy-Authenticate: Basic\r\n", false),
    ("TE: trailers\r\n", false),
    ("TE: gzip;q=0.5, trailers\r\nConnection: TE\r\n", false),
    ("Trailer: X-Sum\r\n", false),
    ("Upgrade: websocket\r\n", false),
    ("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", false),
    ("Upgrade: websocket\r\nConnection: Upgrade\r\n", false),
    ("Upgrade: tide/1\r\nConnection: Upgrade\r\n", false),
    ("Expect: 100-continue\r\n", false),
    ("Expect: the-unexpected\r\n", false),
    ("Upgrade-Insecure-Requests: 1\r\n", true),
    ("Content-Lengths: 5\r\nTransfer-Encodings: chunked\r\n", true),
    ("Via: 1.1 other\r\n", true),
    ("Max-Forwards: 0\r\n", true),
    ("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", true),
    ("Accept-Encoding: gzip, br\r\n", true),
    ("Range: bytes=0-1\r\n", true),
    ("If-None-Match: \"x\"\r\n", true),
    ("Cookie: a=b; c=d\r\nCookie: e=f\r\n", true),
    ("Cookie: a=b\r\nX-A: 1\r\ncookie: c=d\r\nCookie: a=b\r\n", true),
    ("Cookie: a=b;\r\nCookie:\r\nCookie: c=d\r\n", true),
    ("User-Agent: x\r\nX-Gone: 1\r\nX-Set: 0\r\nX-More: 1\r\nx-more: 11\r\n", true),
    ("Authorization: Basic eDp5\r\n", true),
    ("Accept: a\r\nAccept: b\r\nACCEPT: c\r\n", true),
];

/// Headers that a client may forge.
pub const CLAIMS: &[&str] = &[
    "X-Forwarded-For: 198.51.100.1\r\n",
    "X-Forwarded-For: 1.1.1.1, 198.51.100.1\r\n",
    "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 198.51.100.1\r\n",
    "X-Forwarded-For: unknown\r\n",
    "X-Forwarded-For:\r\n",
    "X-Forwarded-For: 198.51.100.1:4711\r\n",
    "X-Forwarded-For: [2001:db8::1]\r\n",
    "X-Forwarded-For: 127.0.0.2\r\n",
    "X-Forwarded-Proto: https\r\n",
    "X-Forwarded-Proto: http, https\r\n",
    "X-Forwarded-Proto: gopher\r\n",
    "X-Forwarded-Host: evil.test\r\n",
    "X-Forwarded-Host: a\r\nX-Forwarded-Host: b\r\n",
    "X-Forwarded-Host: \u{fc}\r\n",
    "X-Forwarded-Port: 443\r\n",
    "X-Forwarded-Port: x\r\n",
    "X-Forwarded-Prefix: /p\r\n",
    "X-Forwarded-Prefix: /p\r\nX-A: 1\r\nx-forwarded-prefix: /q\r\nX_FORWARDED_Ssl: on\r\nX-Forwarded-: 1\r\n",
    "X-Scheme: https\r\nX_scheme: https\r\nX-Schemes: kept\r\nX-: kept\r\nX: kept\r\n",
    "X_Forwarded_For: 1.1.1.1\r\nX_Real_IP: 1.1.1.1\r\nX_Request_Id: x\r\n",
    "Forwarded: for=1.1.1.1;proto=https\r\n",
    "X-Real-IP: 1.1.1.1\r\n",
    "X-Real-Ip: 1.1.1.1\r\nX-REAL-IP: 2.2.2.2\r\n",
    "X-Request-Id: kept request id\r\n",
    "X-Request-Id: kept-request-id\r\n",
    "X-Request-Id: one\r\nX-Request-Id: two\r\n",
    "X-Request-Id:\r\n",
    "CDN-Loop: other\r\n",
    "CDN-Loop: other; a=\"b, c\"\r\ncdn-loop: more\r\n",
    "CDN-Loop: \u{fc}\r\n",
    "CDN-Loop:\r\n",
    "X_Set: c\r\nX_gone: 1\r\nx_MORE: 1\r\nX.Set: c\r\nX.Forwarded.For: 1.1.1.1\r\nx_own: kept\r\n",
    "X_Gone: 1\r\nX-Gone: 2\r\nX_Other: kept\r\nx.own: kept\r\n",
];

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    framings(&mut cases);
    lines(&mut cases);
    cases
}

fn framings(cases: &mut Vec<Case>) {
    for (lines, sound) in FRAMINGS {
        for body in BODIES {
            let bytes = format!("POST /a HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n{body}");
            let case = Case::new(format!("framing {lines:?} of {body:?}"), bytes);
            cases.push(if *sound { case.native() } else { case });
        }
        let bytes = format!("POST /old/a HTTP/1.1\r\n{lines}Host: b.test\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        cases.push(Case::new(format!("framing {lines:?}, edited"), bytes));
        let bytes = format!("GET /a HTTP/1.0\r\nHost: a.test\r\n{lines}\r\nhello");
        cases.push(Case::new(format!("framing {lines:?} over HTTP/1.0"), bytes));
    }
}

fn lines(cases: &mut Vec<Case>) {
    for (lines, sound) in CONNECTIONS {
        let plain = Case::get(format!("GET with {lines:?}"), "a.test", "/a", lines);
        cases.push(if *sound { plain.native() } else { plain });
        cases.push(Case::get(format!("GET with {lines:?}, edited"), "b.test", "/old/a", lines));
        let old = format!("GET /a HTTP/1.0\r\nHost: a.test\r\n{lines}\r\n");
        cases.push(Case::new(format!("GET with {lines:?} over HTTP/1.0"), old));
        let post =
            format!("POST /a HTTP/1.1\r\nHost: a.test\r\n{lines}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
        cases.push(Case::new(format!("POST with {lines:?}"), post));
    }
    for lines in CLAIMS {
        for (host, target) in [("a.test", "/a"), ("b.test", "/old/a"), ("g.test", "/a")] {
            cases.push(Case::get(format!("claim {lines:?} on {host}"), host, target, lines).native());
            cases.push(
                Case::get(format!("claim {lines:?} on {host}, believed"), host, target, lines).native().trusted(),
            );
        }
    }
    for passes in 1..5 {
        let lines = format!("CDN-Loop: {}\r\n", vec!["tidegate"; passes].join(", "));
        cases.push(Case::get(format!("passed {passes} times"), "a.test", "/", &lines).native());
    }
}

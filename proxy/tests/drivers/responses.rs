//! Valid and invalid responses of endpoints, to every kind of request.

use super::case::Case;
use super::recorder::{Reply, Step};

/// Responses; `{pause}` splits the text into two reads, `{close}` and `{reset}` end the connection.
pub const ANSWERS: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{pause}hello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe{pause}ll{pause}o",
    "HTTP/1.1 200 OK\r\nContent-Le{pause}ngth: 5\r\n\r{pause}\nhello",
    "HTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 05\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 5,6\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello{pause}{reset}",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x-own, keep-alive\r\nX-Own: 1\r\nX-Other: 2\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: content-length\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: transfer-encoding, close\r\n\r\n5\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: set-cookie\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nProxy-Connection: close\r\nProxy-Authenticate: x\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTrailer: X-Sum\r\nTE: trailers\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n{pause}4\r\nello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r{pause}\nhel{pause}lo\r\n{pause}0{pause}\r\n\r{pause}\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0;z\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0005 \r\nhello\r\n00\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\nContent-Length: 9\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{pause}{reset}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n2\r\nok\r\n0\r\n\r\n{pause}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked,x\r\n\r\n2\r\nok\r\n0\r\n\r\n{pause}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{pause}{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked,\r\n\r\n2\r\nok\r\n0\r\n\r\n{pause}{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked;q=1\r\n\r\n2\r\nok\r\n0\r\n\r\n{pause}{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{pause}{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n \r\n\r\n2\r\nok\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\n\r\nhe{pause}llo{pause}{close}",
    "HTTP/1.1 200 OK\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\n\r\nhello{pause}{reset}",
    "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello{close}",
    "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
    "HTTP/1.0 200 OK\r\n\r\nhello{close}",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n5\r\nhello\r\n0\r\n\r\n{close}",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello{close}",
    "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{close}",
    "HTTP/1.1 204 No Content\r\nTransfer-Encoding: gzip\r\n\r\n{close}",
    "HTTP/1.1 204 No Content\r\nContent-Length: 1, 2\r\n\r\n{close}",
    "HTTP/1.0 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n{close}",
    "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/5\r\nContent-Length: 2\r\n\r\nhe",
    "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 05\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5, 5\r\n\r\n{close}",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello{close}",
    "HTTP/1.1 301 Moved Permanently\r\nLocation: http://c.internal/new/x\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone",
    "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops",
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 2x0 Odd\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 Other words\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 \u{fc}\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 a\u{1}b\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n{close}",
    "http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n{close}",
    "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello{close}",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\n\r\nhello{close}",
    "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: a\r\n\tb\r\n  c\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\n X: a\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nX a\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nX: a\u{0}b\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nX: a\u{7f}b\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nX: \u{fc}\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX:\r\nY:  \t z \t\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX(Y): a\r\nContent-Length: 0\r\n\r\n{close}",
    "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: s\r\nX-Gone: 1\r\nX-Set: 0\r\nX-More: 1\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nDate: not a date\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nDate: a\r\nDate: b\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nset-cookie: b\r\nSET-COOKIE: c\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX-Request-Id: theirs\r\nStrict-Transport-Security: max-age=1\r\nAlt-Svc: h3\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 100 Continue\r\n\r\n{pause}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n{pause}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nConnection: x-own\r\nX-Own: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\nServer: s\r\n\r\n{pause}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n{pause}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked, identity\r\n\r\n{pause}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello{close}",
    "HTTP/1.1 199 Odd\r\n\r\n{pause}HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n{close}",
    "HTTP/1.1 100 Continue\r\n\r\n{pause}{reset}",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n{close}",
    "nonsense{close}",
    "nonsense\r\n\r\n{close}",
    "{close}",
    "{reset}",
    "HTTP/1.1 200 OK\r\n{close}",
    "HTTP/1.1 200 OK\r\n{pause}{reset}",
    "HTTP/1.1{close}",
];

/// The requests that they answer.
const ASKED: &[(&str, &str)] = &[
    ("GET", "GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    ("HEAD", "HEAD /a HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    ("POST", "POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"),
    ("GET and close", "GET /a HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"),
    ("GET, edited", "GET /old/a HTTP/1.1\r\nHost: b.test\r\n\r\n"),
];

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for answer in ANSWERS {
        for (name, asked) in ASKED {
            // The body of a response to HEAD may arrive before or after the next request.
            if *name == "HEAD" && answer.contains("{pause}") && !answer.contains("HTTP/1.1 1") {
                continue;
            }
            let case = Case::new(format!("{name} answered {answer:?}"), *asked).native().answered(reply(answer));
            cases.push(if answer.contains("{close}") || answer.contains("{reset}") { case.fresh() } else { case });
        }
        let old = "GET /a HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n";
        cases.push(Case::new(format!("GET over HTTP/1.0 answered {answer:?}"), old).fresh().answered(reply(answer)));
    }
    large(&mut cases);
    nominating(&mut cases);
    broken_while_idle(&mut cases);
    passed_over(&mut cases);
    cases
}

/// An answer from its text.
pub fn reply(text: &str) -> Reply {
    let mut steps = Vec::new();
    for part in text.split_inclusive('}') {
        let (bytes, step) = match part.rsplit_once('{') {
            Some((bytes, "pause}")) => (bytes, Some(Step::Pause)),
            Some((bytes, "close}")) => (bytes, Some(Step::Close)),
            Some((bytes, "reset}")) => (bytes, Some(Step::Reset)),
            Some(_) | None => (part, None),
        };
        if !bytes.is_empty() {
            steps.push(Step::Send(bytes.into()));
        }
        steps.extend(step);
    }
    Reply { steps, early: false }
}

fn large(cases: &mut Vec<Case>) {
    for (name, asked) in ASKED {
        for size in [1000, 4096, 65_536, 102_400, 300_000] {
            let body = "x".repeat(size);
            for (how, text) in [
                ("counted", format!("Content-Length: {size}\r\n\r\n{body}")),
                ("chunked", format!("Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n")),
                ("closed", format!("\r\n{body}{{close}}")),
            ] {
                let case = Case::new(format!("{name} answered by {size} bytes, {how}"), *asked).native();
                cases.push(case.answered(reply(&format!("HTTP/1.1 200 OK\r\n{text}"))).fresh());
            }
        }
        for count in [64, 65, 127, 128, 200, 255, 256, 300] {
            let lines: String = (0..count).map(|n| format!("X-{n}: {n}\r\n")).collect();
            let text = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 5\r\n\r\nhello{{close}}");
            cases.push(
                Case::new(format!("{name} answered by {count} lines"), *asked).native().answered(reply(&text)).fresh(),
            );
        }
        for size in [8_000, 40_000, 65_000, 66_000, 300_000] {
            let text = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 5\r\n\r\nhello{{close}}", "x".repeat(size));
            let case = Case::new(format!("{name} answered by a line of {size} bytes"), *asked);
            cases.push(case.native().answered(reply(&text)).fresh());
        }
    }
}

/// `Connection` header lines that nominate few headers, and many.
fn nominating(cases: &mut Vec<Case>) {
    for (name, asked) in ASKED {
        for count in [1, 32, 33, 1000] {
            let words: Vec<String> = (0..count).map(|n| format!("x-{n}")).collect();
            let words = words.join(", ");
            let lines = format!("Connection: {words}\r\nConnection: {words}\r\nX-0: 1\r\nX-32: 2\r\n");
            let text = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 5\r\n\r\nhello{{close}}");
            let case = Case::new(format!("{name} answered by {count} nominated headers"), *asked).native();
            cases.push(case.answered(reply(&text)).fresh());
        }
    }
}

/// The first answer is one after which the route retries.
fn passed_over(cases: &mut Vec<Case>) {
    for (name, asked) in &ASKED[..4] {
        let asked = asked.replace("a.test", "r.test");
        for first in [
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy",
            "HTTP/1.1 500 Internal Server Error\r\nTransfer-Encoding: chunked\r\n\r\n4\r\noops\r\n0\r\n\r\n",
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n{close}",
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbu{close}",
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        ] {
            for second in [ANSWERS[0], "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy", "{close}"] {
                let case = Case::new(format!("{name} answered {first:?}, then {second:?}"), &*asked).native().fresh();
                cases.push(case.answered(reply(first)).answered(reply(second)));
            }
        }
    }
}

/// The endpoint closes its connection between two requests, or at the second.
fn broken_while_idle(cases: &mut Vec<Case>) {
    let usual = || reply(ANSWERS[0]);
    for (name, asked) in ASKED.iter().filter(|(name, _)| !name.contains("close")) {
        for end in ["{close}", "{reset}", "nonsense\r\n\r\n{close}"] {
            let case = Case::new(format!("a second {name} on one connection, answered {end:?}"), asked.repeat(2));
            cases.push(case.native().fresh().answered(usual()).answered(reply(end)));
        }
    }
}

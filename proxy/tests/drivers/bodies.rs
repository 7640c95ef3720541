//! Bodies of requests in every framing and size, in pieces; and several requests on one connection.

use super::case::Case;
use super::corpus::SEED;
use super::recorder::{Reply, Step};

const EARLY: &str = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch";

/// Chunked bodies, and whether they are unambiguous.
const CHUNKS: &[(&str, bool)] = &[
    ("0\r\n\r\n", true),
    ("5\r\nhello\r\n0\r\n\r\n", true),
    ("1\r\nh\r\n4\r\nello\r\n0\r\n\r\n", true),
    ("005\r\nhello\r\n000\r\n\r\n", true),
    ("A\r\n0123456789\r\n0\r\n\r\n", true),
    ("a\r\n0123456789\r\n0\r\n\r\n", true),
    ("5;x=y\r\nhello\r\n0;z\r\n\r\n", false),
    ("5;x=\"a;b\"\r\nhello\r\n0\r\n\r\n", false),
    ("5 ;x\r\nhello\r\n0\r\n\r\n", false),
    ("5 \r\nhello\r\n0\r\n\r\n", false),
    (" 5\r\nhello\r\n0\r\n\r\n", false),
    ("5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", false),
    ("5\r\nhello\r\n0\r\nX-Sum: 1\r\nHost: evil\r\nContent-Length: 9\r\n\r\n", false),
    ("5\r\nhello\r\n0\r\n X: y\r\n\r\n", false),
    ("5\r\nhello\r\n0\r\nno colon\r\n\r\n", false),
    ("5\nhello\n0\n\n", false),
    ("5\r\nhello\n0\r\n\r\n", false),
    ("5\r\nhello\r\n0\r\n\n", false),
    ("5\r\nhello0\r\n\r\n", false),
    ("5\r\nhelloX\r\n0\r\n\r\n", false),
    ("6\r\nhello\r\n0\r\n\r\n", false),
    ("4\r\nhello\r\n0\r\n\r\n", false),
    ("g\r\nhello\r\n0\r\n\r\n", false),
    ("-5\r\nhello\r\n0\r\n\r\n", false),
    ("+5\r\nhello\r\n0\r\n\r\n", false),
    ("0x5\r\nhello\r\n0\r\n\r\n", false),
    ("5\r\r\nhello\r\n0\r\n\r\n", false),
    ("5_0\r\nhello\r\n0\r\n\r\n", false),
    ("\r\n5\r\nhello\r\n0\r\n\r\n", false),
    ("ffffffffffffffff\r\nhello\r\n0\r\n\r\n", false),
    ("fffffffffffffffff\r\nhello\r\n0\r\n\r\n", false),
    ("10000000000000005\r\nhello\r\n0\r\n\r\n", false),
    ("00000000000000000000000000000005\r\nhello\r\n0\r\n\r\n", false),
    ("5\r\nhello\r\n", false),
    ("5\r\nhel", false),
    ("5\r\nhello\r\n0\r\n", false),
    ("5", false),
    ("5\r\nhello\r\n0\r\n\r\nmore", false),
];

/// Requests that are sent in pairs without a pause.
const FOLLOWED: &[&str] = &[
    "GET /one HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "GET /old/two HTTP/1.1\r\nHost: b.test\r\n\r\n",
    "HEAD /three HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "POST /four HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
    "POST /five HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST /six HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
    "GET /seven HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
    "GET /eight HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n",
    "GET /nine HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\n\r\n",
    "GET /ten HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
    "GET /eleven HTTP/1.1\r\nHost: unknown.test\r\n\r\n",
    "GET /twelve HTTP/1.1\r\n\r\n",
    "GET /thirteen HTTP/1.1\r\nHost: a.test\r\nConnection: x-own\r\nX-Own: 1\r\n\r\n",
    "GET /fourteen HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "POST /fifteen HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET /sixteen HTTP/1.1\r\nHost: a.test\r\nUpgrade-Insecure-Requests: 1\r\n\r\n",
    "GET /seventeen HTTP/1.1\r\nHost: a.test\r\nX: y\nContent-Length: 44\r\n\r\n",
    "nonsense\r\n\r\n",
];

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut random = fastrand::Rng::with_seed(SEED);
    sizes(&mut cases, &mut random);
    for (body, sound) in CHUNKS {
        for (host, target) in [("a.test", "/a"), ("b.test", "/old/a")] {
            let head = format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
            let whole = Case::new(format!("chunks {body:?} on {host}"), format!("{head}{body}"));
            let apart = whole.clone().in_pieces(vec![head.clone().into(), body.as_bytes().to_vec()]);
            let bytewise = std::iter::once(head.into_bytes()).chain(body.bytes().map(|byte| vec![byte])).collect();
            let bytewise = whole.clone().in_pieces(bytewise);
            cases.extend([whole, apart, bytewise].map(|case| if *sound { case.native() } else { case }));
        }
    }
    for first in FOLLOWED {
        for second in FOLLOWED {
            let name = format!("{:?} followed by {:?}", line(first), line(second));
            cases.push(Case::new(name, format!("{first}{second}")));
        }
        let name = format!("{:?} in two pieces", line(first));
        for at in [1, 10, first.len() / 2, first.len() - 3, first.len() - 1] {
            let pieces = vec![first.as_bytes()[..at].to_vec(), first.as_bytes()[at..].to_vec()];
            cases.push(Case::new(format!("{name}, cut at {at}"), *first).in_pieces(pieces));
        }
    }
    answered_early(&mut cases);
    cases
}

fn line(request: &str) -> &str {
    request.lines().next().unwrap_or_default()
}

fn sizes(cases: &mut Vec<Case>, random: &mut fastrand::Rng) {
    for size in [0, 1, 100, 999, 1000, 1001, 4096, 16_384, 102_400, 300_000] {
        let body: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
        for host in ["a.test", "b.test", "l.test"] {
            let counted = format!("PUT /old/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n\r\n");
            let chunked = format!("PUT /old/x HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
            let mut chunks = Vec::new();
            let mut left = body.as_slice();
            while !left.is_empty() {
                let (piece, rest) = left.split_at(random.usize(1..=left.len().min(20_000)));
                chunks.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
                left = rest;
            }
            chunks.extend(b"0\r\n\r\n");
            for (how, head, body) in [("counted", counted, &body), ("chunked", chunked, &chunks)] {
                let name = format!("a {how} body of {size} bytes on {host}");
                let whole = Case::new(&name, [head.as_bytes(), body].concat()).native();
                cases.push(whole.clone());
                cases.push(whole.clone().in_pieces(vec![head.into_bytes(), body.clone()]));
                for _ in 0..2 {
                    let pieces = cut(whole.bytes(), random);
                    cases.push(whole.clone().in_pieces(pieces));
                }
            }
        }
    }
}

/// Cuts bytes at random positions, some into small pieces.
pub fn cut(bytes: Vec<u8>, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut left = bytes.as_slice();
    while !left.is_empty() && pieces.len() < 12 {
        let most = if random.bool() { 20 } else { left.len() };
        let (piece, rest) = left.split_at(random.usize(1..=most.min(left.len())));
        pieces.push(piece.to_vec());
        left = rest;
    }
    pieces.push(left.to_vec());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Answers that are sent before the body is read, with and without the end of the connection.
fn answered_early(cases: &mut Vec<Case>) {
    for size in [5, 4096, 102_400] {
        let head = format!("POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: {size}\r\n\r\n");
        let body = vec![b'x'; size];
        for (closes, how) in [(false, "goes on"), (true, "closes")] {
            let mut steps = vec![Step::Send(
                EARLY.replace("\r\n\r\n", if closes { "\r\nConnection: close\r\n\r\n" } else { "\r\n\r\n" }).into(),
            )];
            if closes {
                steps.push(Step::Close);
            }
            let reply = Reply { steps, early: true };
            let name = format!("an early answer to {size} bytes, and the endpoint {how}");
            let whole = Case::new(name, [head.as_bytes(), &body].concat()).native().fresh().answered(reply);
            cases.push(whole.clone());
            cases.push(whole.in_pieces(vec![head.clone().into_bytes(), body.clone()]));
        }
    }
}

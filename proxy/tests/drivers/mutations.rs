//! Mutations of the tables' cases: a few bytes flipped, inserted, removed, doubled or cut off.

use fastrand::Rng;

use super::bodies::cut;
use super::case::Case;
use super::recorder::{Reply, Step};
use super::responses::{ANSWERS, reply};

const REQUESTS: usize = 900;
const RESPONSES: usize = 600;

/// Cases with more bytes than this are not mutated.
const BYTES_MAX: usize = 3000;

/// Fragments that are difficult for parsers.
const PIECES: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\r\n ",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"\"",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"0",
    b"1",
    b"-",
    b"+",
    b"/",
    b"//",
    b"/../",
    b"%2e%2e/",
    b"?",
    b"#",
    b"%",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Host: b.test\r\n",
    b"X: y\r\n",
    b"chunked",
    b"GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
];

pub fn of_requests(cases: &[Case], random: &mut Rng) -> Vec<Case> {
    let small: Vec<&Case> = cases.iter().filter(|case| case.bytes().len() <= BYTES_MAX).collect();
    let mutations = (0..REQUESTS).map(|number| {
        let base = small[random.usize(..small.len())];
        let mut bytes = base.bytes();
        for _ in 0..random.usize(1..=3) {
            mutate(&mut bytes, random);
        }
        let name = format!("mutation {number} of {}", base.name);
        let mut case = Case { name, native: false, ..base.clone() };
        case.pieces = if random.u8(..4) == 0 { cut(bytes, random) } else { vec![bytes] };
        case
    });
    mutations.collect()
}

/// Each response ends with a close, because a client would otherwise wait for the rest of an incomplete one.
pub fn of_responses(cases: &[Case], random: &mut Rng) -> Vec<Case> {
    let asked: Vec<&Case> = cases.iter().filter(|case| case.native && case.name.contains(" answered ")).collect();
    let mutations = (0..RESPONSES).map(|number| {
        let base = ANSWERS[random.usize(..ANSWERS.len())];
        // In one piece: later bytes of a response may or may not coincide with the next request.
        let mut bytes: Vec<u8> = reply(base).steps.into_iter().filter_map(sent).flatten().collect();
        for _ in 0..random.usize(1..=3) {
            mutate(&mut bytes, random);
        }
        let steps = vec![Step::Send(bytes), Step::Close];
        let asked = asked[random.usize(..asked.len())];
        let name = format!("mutation {number} of answer {base:?}");
        Case { name, replies: vec![Reply { steps, early: false }], ..asked.clone() }.fresh()
    });
    mutations.collect()
}

fn sent(step: Step) -> Option<Vec<u8>> {
    if let Step::Send(bytes) = step { Some(bytes) } else { None }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let at = random.usize(..bytes.len());
    let end = (at + random.usize(1..=12)).min(bytes.len());
    match random.u8(..10) {
        0 => bytes[at] ^= 1 << random.u8(..8),
        1 => bytes[at] = random.u8(..),
        2..=4 => {
            let piece = PIECES[random.usize(..PIECES.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
        5 => {
            let piece = PIECES[random.usize(..PIECES.len())];
            bytes.splice(at..end, piece.iter().copied());
        }
        6 => drop(bytes.drain(at..end)),
        7 => {
            let doubled = bytes[at..end].to_vec();
            bytes.splice(at..at, doubled);
        }
        8 => {
            // A whole line, where it has most effect.
            let line = bytes.split_inclusive(|byte| *byte == b'\n').nth(random.usize(..4)).map(<[u8]>::to_vec);
            let start = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            bytes.splice(start..start, line.unwrap_or_default());
        }
        _ if random.u8(..3) == 0 => bytes.truncate(at),
        _ => bytes[at..end].make_ascii_uppercase(),
    }
}

//! Random combinations from the tables: a method, a target and a host with some lines, a body and an answer.

use fastrand::Rng;

use super::bodies::cut;
use super::case::Case;
use super::fields::{CLAIMS, CONNECTIONS};
use super::heads::{METHODS, SYNTAX, TARGETS};
use super::responses::{ANSWERS, reply};

const CASES: usize = 700;

const HOSTS: [&str; 8] = ["a.test", "a.test", "b.test", "b.test", "A.test:80", "l.test", "g.test", "n.test"];

/// Lines that frame a body, and the body.
const FRAMED: [(&str, &str); 6] = [
    ("", ""),
    ("", ""),
    ("Content-Length: 0\r\n", ""),
    ("Content-Length: 5\r\n", "hello"),
    ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "2;x\r\nhe\r\n3\r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n"),
];

fn any<'a, T>(table: &'a [T], random: &mut Rng) -> &'a T {
    &table[random.usize(..table.len())]
}

pub fn all(random: &mut Rng) -> Vec<Case> {
    (0..CASES).map(|number| one(number, random)).collect()
}

fn one(number: usize, random: &mut Rng) -> Case {
    // Mostly requests of the native driver: all others have only one parser.
    let odd = random.u8(..4) == 0;
    let method = if odd { *any(METHODS, random) } else { any(&["GET", "HEAD", "POST", "PUT", "DELETE"], random) };
    let target = if random.bool() { *any(TARGETS, random) } else { any(&["/old/a/../b?c", "/old", "/", "/x"], random) };
    let (framing, body) = any(&FRAMED, random);
    let mut lines = vec![format!("Host: {}\r\n", any(&HOSTS, random)), (*framing).to_owned()];
    for _ in 0..random.usize(..4) {
        let line = match random.u8(..5) {
            0 if odd => any(SYNTAX, random),
            0 | 1 => any(CLAIMS, random),
            _ => {
                let (line, sound) = any(CONNECTIONS, random);
                if *sound || odd { line } else { "Accept: */*\r\n" }
            }
        };
        lines.push(line.to_owned());
    }
    random.shuffle(&mut lines);
    let bytes = format!("{method} {target} HTTP/1.1\r\n{}\r\n{body}", lines.concat());
    let answer = any(ANSWERS, random);
    // Later bytes of a response may or may not coincide with the next request.
    let answer = answer.replace("{pause}", "");
    let mut case = Case::new(format!("combination {number}"), bytes).answered(reply(&answer)).fresh();
    case.trusted = random.bool();
    if random.u8(..3) == 0 {
        case.pieces = cut(case.bytes(), random);
    }
    case
}

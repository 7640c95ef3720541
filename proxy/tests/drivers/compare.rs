//! Whether the two sides did the same. The differences that are none are listed here and nowhere else, each with its reason;
//! docs/decisions/0015-one-corpus-for-two-drivers.md has them for readers.

use std::collections::BTreeMap;

use super::case::Case;
use super::message::{Framing, Kind, Message};
use super::recorder::{Reply, Step};
use super::side::Outcome;

/// What differs, for people; empty when nothing does. The first is the side whose lean driver is on.
pub fn differences(case: &Case, lean: &Outcome, full: &Outcome) -> Vec<String> {
    if case.is_answered_early() {
        // Whether the rest of the body is still read, and the connection goes on, is a matter of time on both sides. The
        // answer is not: it is there before the rest.
        if lean.client.is_empty() || full.client.is_empty() {
            return vec![format!("{} responses, and {}", lean.client.len(), full.client.len())];
        }
        return responses(case, lean, full, 1);
    }
    if lax_chunks(case) && broke(lean) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Some(number) = refused(case, lean, full).or_else(|| unsaid(case, full)) {
        // What follows depends on who closed.
        return responses(case, lean, full, number);
    }
    let [up, full_up] = [lean, full].map(arrived);
    let stops = stops_after_a_body(case, lean, full);
    if up.len() == full_up.len() || stops && up.len() > full_up.len() {
        for (number, (one, other)) in up.iter().zip(&full_up).enumerate() {
            compare(&format!("request {number}"), one, other, &mut found);
        }
    } else {
        found.push(format!("{} requests reached the endpoint, and {}", up.len(), full_up.len()));
    }
    let statuses = |outcome: &Outcome| {
        outcome.client.iter().map(|message| message.status().to_string()).collect::<Vec<_>>().join(" ")
    };
    if lean.client.len() != full.client.len() && !stops {
        found.push(format!("the client got {}, and {}", statuses(lean), statuses(full)));
    }
    found.extend(responses(case, lean, full, lean.client.len().min(full.client.len())));
    if lean.rest != full.rest && !stops {
        found.push("what the client got besides".to_owned());
    }
    // Who has said that it closes may still wait for the rest of a body, or not.
    let said = has_body(case) && full.client.last().is_some_and(closes);
    if lean.closed != full.closed && !stops && !said {
        found.push(format!("whether the connection was closed: {}, and {}", lean.closed, full.closed));
    }
    found
}

/// Whether a response was refused or broken off.
fn broke(side: &Outcome) -> bool {
    side.client.iter().any(|response| response.status() == 502 || !response.whole)
}

/// Whether a response has what Pingora's parser of chunks takes and the grammar does not (RFC 9112 section 7.1): a size without
/// digits, or an end of a line within what follows the size. The lean driver refuses it, for another parser may read another
/// message. In requests both refuse it.
pub fn lax_chunks(case: &Case) -> bool {
    case.replies.iter().map(sent).any(|bytes| {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        end.is_some_and(|end| has_lax_size(&bytes[end + 4..]))
    })
}

fn has_lax_size(mut body: &[u8]) -> bool {
    while let Some(end) = body.iter().position(|byte| *byte == b'\n') {
        let line = &body[..end];
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let text = line.strip_suffix(b"\r").unwrap_or_default();
        let Some(size) =
            std::str::from_utf8(&line[..digits]).ok().and_then(|text| usize::from_str_radix(text, 16).ok())
        else {
            return true;
        };
        if text.is_empty() || text.iter().any(u8::is_ascii_control) {
            return true;
        }
        match body.get((end + 3).saturating_add(size)..) {
            Some(rest) if size > 0 => body = rest,
            Some(_) | None => return false,
        }
    }
    false
}

fn closes(response: &Message) -> bool {
    response.values("connection").any(|value| value == b"close")
}

/// Compares the first responses.
fn responses(case: &Case, lean: &Outcome, full: &Outcome, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    for number in 0..count {
        let [mut one, mut other] = [lean, full].map(|outcome| given(&outcome.client[number]));
        if case.is_answered_early() {
            one.lines.remove(b"connection".as_slice());
            other.lines.remove(b"connection".as_slice());
        } else if has_body(case) && number + 1 == full.client.len() {
            // See `stops_after_a_body`: the full driver may say so, where the lean one does not.
            let closes = |same: &mut Same| same.lines.remove(b"connection".as_slice());
            if let (Some(says), _) = (closes(&mut one), closes(&mut other)) {
                other.lines.insert(b"connection".to_vec(), says.clone());
                one.lines.insert(b"connection".to_vec(), says);
            }
        }
        compare(&format!("response {number}"), &one, &other, &mut found);
    }
    found
}

/// Pingora ends a connection after some requests with a body that the edge answers itself. The lean driver goes on.
fn stops_after_a_body(case: &Case, lean: &Outcome, full: &Outcome) -> bool {
    // No endpoint of the corpus names the request in its response.
    let own = full.client.last().is_some_and(|last| last.values("x-request-id").next().is_some());
    has_body(case) && own && full.closed && full.rest.is_empty() && lean.client.len() > full.client.len()
}

fn has_body(case: &Case) -> bool {
    let bytes = case.bytes().to_ascii_lowercase();
    let announces = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    announces(b"content-length") || announces(b"transfer-encoding")
}

/// The response that the lean driver answers by 502 and the full one sends on, where there is one: a coding that says nothing of where
/// the body ends (RFC 9112 section 6.3). Over HTTP/2 the full one sends it on without saying that there was a coding.
fn refused(case: &Case, lean: &Outcome, full: &Outcome) -> Option<usize> {
    lean.client.iter().zip(&full.client).position(|(one, other)| {
        let coded = other.values("transfer-encoding").next().is_some();
        let shown = coded && other.framing == Framing::Broken;
        one.status() == 502 && (shown || over_http2(full) && doubtful(case) && other.status() != 502)
    })
}

/// Whether an endpoint gives one of these responses.
fn doubtful(case: &Case) -> bool {
    given_by_endpoint(case).any(|response| response.framing == Framing::Broken)
}

/// The response that only the lean driver can make sense of to an HTTP/2 client, where there is one: the full one sends on a
/// length that is repeated as it is, and clients refuse it (RFC 9113 section 8.1.1).
fn unsaid(case: &Case, full: &Outcome) -> Option<usize> {
    let mut lengths =
        given_by_endpoint(case).map(|response| response.values("content-length").collect::<Vec<_>>().join(&b","[..]));
    let repeated = over_http2(full) && lengths.any(|lengths| lengths.contains(&b','));
    full.client.iter().position(|other| repeated && other.start == b"PROTOCOL_ERROR")
}

/// Whether the client asked in frames: then it is told of no connection.
fn over_http2(side: &Outcome) -> bool {
    side.client.iter().all(|response| response.trailers.starts_with(b"{") || !response.whole)
}

/// What an endpoint answers, as far as it can be read.
fn given_by_endpoint(case: &Case) -> impl Iterator<Item = Message> {
    case.replies.iter().flat_map(|reply| {
        let sent = sent(reply);
        let mut at = 0;
        let next = move || {
            let (message, length) = Message::read(&sent[at..], Kind::Response { to_head: false }, true)?;
            at += length;
            Some(message)
        };
        std::iter::from_fn(next)
    })
}

/// The bytes of a reply.
fn sent(reply: &Reply) -> Vec<u8> {
    let steps = reply.steps.iter().map(|step| if let Step::Send(bytes) = step { bytes.as_slice() } else { &[] });
    steps.collect::<Vec<_>>().concat()
}

/// A message in which what may differ is the same.
#[derive(Debug)]
struct Same {
    start: Vec<u8>,
    /// The values of each name. Names are compared without case, for so they are (RFC 9110 section 5.1), and lines of
    /// different names stand in no order (section 5.3).
    lines: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    framing: Framing,
    /// Without the boundaries of chunks, which mean nothing (RFC 9112 section 7.1).
    body: Vec<u8>,
    trailers: Vec<u8>,
    whole: bool,
}

impl Same {
    fn new(message: &Message) -> Self {
        let mut lines: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for (name, value) in &message.lines {
            lines.entry(name.to_ascii_lowercase()).or_default().push(value.clone());
        }
        Self {
            start: message.start.clone(),
            lines,
            framing: message.framing,
            body: message.body.clone(),
            trailers: message.trailers.clone(),
            whole: message.whole,
        }
    }

    /// Replaces the values of a name that are only this side's own.
    fn forget(&mut self, name: &str, own: impl Fn(&[u8]) -> bool) {
        for value in self.lines.get_mut(name.as_bytes()).into_iter().flatten() {
            if own(value.strip_prefix(b": ").unwrap_or(value)) {
                *value = b": (own)".to_vec();
            }
        }
    }
}

/// An id that was made of chance.
fn is_made(id: &[u8]) -> bool {
    id.len() == 32 && id.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The requests that the endpoint got whole. One that broke off was broken off by its client, or by what its client
/// sent; how far it came by then is a matter of time.
fn arrived(outcome: &Outcome) -> Vec<Same> {
    let whole = outcome.upstream.iter().filter(|message| message.whole);
    let forgotten = whole.map(|message| {
        let mut same = Same::new(message);
        same.forget("x-request-id", is_made);
        same
    });
    forgotten.collect()
}

fn given(response: &Message) -> Same {
    let mut same = Same::new(response);
    // The full driver sends on the endpoint's version instead of its own (RFC 9112 section 2.3).
    if let Some(rest) = same.start.strip_prefix(b"HTTP/1.0 ") {
        same.start = [b"HTTP/1.1 ", rest].concat();
    }
    if (100..200).contains(&response.status()) && response.status() != 101 {
        // The full driver sends on what belongs to the endpoint's connection.
        for name in ["connection", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding", "content-length"] {
            same.lines.remove(name.as_bytes());
        }
    }
    // Pingora says of HTTP/1.1 what goes without saying (RFC 9112 section 9.3).
    if same.lines.get(b"connection".as_slice()).is_some_and(|values| *values == [b": keep-alive"]) {
        same.lines.remove(b"connection".as_slice());
    }
    // Pingora replaces the endpoint's date by its own; the lean driver adds one where there is none (RFC 9110 section 6.6.1).
    if let Some(dates) = same.lines.get_mut(b"date".as_slice()) {
        *dates = vec![b": (some)".to_vec()];
    }
    // One length is one number, however often and at what length it is written (RFC 9110 section 8.6).
    if let Some(lengths) = same.lines.get_mut(b"content-length".as_slice()) {
        let text = String::from_utf8_lossy(&lengths.join(b",".as_slice())).replace(':', "");
        let numbers: Result<Vec<u64>, _> = text.split(',').map(|number| number.trim().parse()).collect();
        if let Ok(numbers) = numbers
            && numbers.iter().all(|number| *number == numbers[0])
        {
            *lengths = vec![format!(": {}", numbers[0]).into_bytes()];
        }
    }
    // Answers of the edge's own name the request in their text.
    if let Some(id) = response.values("x-request-id").next().filter(|id| is_made(id)) {
        let text = String::from_utf8_lossy(&same.body).replace(std::str::from_utf8(id).unwrap(), "(own)");
        same.body = text.into_bytes();
    }
    same.forget("x-request-id", is_made);
    same
}

fn compare(what: &str, one: &Same, other: &Same, found: &mut Vec<String>) {
    let text = |bytes: &[u8]| bytes[..bytes.len().min(60)].escape_ascii().to_string();
    if one.start != other.start {
        found.push(format!("the first line of {what}: {}, and {}", text(&one.start), text(&other.start)));
    }
    for name in one.lines.keys().chain(other.lines.keys().filter(|name| !one.lines.contains_key(*name))) {
        let (value, its) = (one.lines.get(name), other.lines.get(name));
        if value != its {
            let texts = [value, its].map(|values| {
                values.map(|values| values.iter().map(|value| text(value)).collect::<Vec<_>>().join(", "))
            });
            found.push(format!("{what}, {}{:?}, and {:?}", text(name), texts[0], texts[1]));
        }
    }
    if one.framing != other.framing {
        found.push(format!("{what} is framed by {:?}, and {:?}", one.framing, other.framing));
    }
    if one.whole != other.whole {
        found.push(format!("{what} is whole: {}, and {}", one.whole, other.whole));
    }
    // How much of what breaks off gets through is a matter of time. What cannot be framed has the next response in it.
    let cut = !one.whole && !other.whole;
    let begin_alike = one.body.starts_with(&other.body) || other.body.starts_with(&one.body);
    let broken = one.framing == Framing::Broken && other.framing == Framing::Broken;
    if one.body != other.body && !(cut && begin_alike) && !broken {
        found.push(format!("the body of {what}: {} bytes, and {}", one.body.len(), other.body.len()));
    }
    if one.trailers != other.trailers && !cut {
        found.push(format!("the trailers of {what}: {}, and {}", text(&one.trailers), text(&other.trailers)));
    }
}

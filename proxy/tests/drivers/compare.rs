//! The comparison of the two sides. The accepted differences are listed here and nowhere else, each with its reason;
//! docs/decisions/0015-one-corpus-for-two-drivers.md explains them.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;

use super::case::Case;
use super::message::{Framing, Message};
use super::recorder::Step;
use super::side::Outcome;

/// The differences as text; empty if there are none. The first outcome is that of the native driver.
pub fn differences(case: &Case, native: &Outcome, full: &Outcome) -> Vec<String> {
    if case.is_answered_early() {
        // Whether the rest of the body is read and the connection continues depends on timing in both drivers. The
        // response does not: it is sent before the rest.
        if native.client.is_empty() || full.client.is_empty() {
            return vec![format!("{} responses, and {}", native.client.len(), full.client.len())];
        }
        return responses(case, native, full, 1);
    }
    if let Some(count) = meets_a_close(case, native, full) {
        return responses(case, native, full, count);
    }
    let mut found = Vec::new();
    let [up, full_up] = [native, full].map(arrived);
    let stops = stops_early(case, native, full);
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
    if native.client.len() != full.client.len() && !stops {
        found.push(format!("the client got {}, and {}", statuses(native), statuses(full)));
    }
    found.extend(responses(case, native, full, native.client.len().min(full.client.len())));
    if native.rest != full.rest && !stops {
        found.push("what the client got besides".to_owned());
    }
    // See `stops_early`; and after an announced close, the rest of a body may or may not be read.
    let said = may_stop(case, full) && full.client.last().is_some_and(closes);
    if native.closed != full.closed && !stops && !said {
        found.push(format!("whether the connection was closed: {}, and {}", native.closed, full.closed));
    }
    found
}

/// The number of responses before a request that only one side sends, because its endpoint has silently closed the
/// connection. Whether the close is noticed in time is a race, and only an idempotent request may be sent again (RFC
/// 9110 section 9.2.2).
fn meets_a_close(case: &Case, one: &Outcome, other: &Outcome) -> Option<usize> {
    let closes = |step: &Step| matches!(step, Step::Close | Step::Reset);
    if !case.replies.iter().any(|reply| reply.steps.iter().any(closes)) {
        return None;
    }
    let [first, second] = [one, other].map(arrived);
    let count = first.len().min(second.len());
    let request = first.get(count).or_else(|| second.get(count))?;
    let lost = if first.len() > second.len() { other } else { one };
    let idempotent = [&b"GET "[..], b"HEAD ", b"OPTIONS ", b"TRACE ", b"PUT ", b"DELETE "];
    let may_be_lost = count > 0 && !idempotent.iter().any(|method| request.start.starts_with(method));
    (may_be_lost && lost.client.get(count)?.status() == 502 && one.client.len().min(other.client.len()) >= count)
        .then_some(count)
}

fn closes(response: &Message) -> bool {
    response.values("connection").any(|value| value == b"close")
}

/// Compares the first responses.
fn responses(case: &Case, native: &Outcome, full: &Outcome, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    for number in 0..count {
        let [mut one, mut other] = [native, full].map(|outcome| given(&outcome.client[number]));
        if case.is_answered_early() {
            one.lines.remove(b"connection".as_slice());
            other.lines.remove(b"connection".as_slice());
        } else if may_stop(case, full) && number + 1 == full.client.len() {
            // See `stops_early`: the Pingora driver may announce a close that the native one does not.
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

/// Pingora closes a connection after some requests with a body that the edge answers itself, and after all requests
/// that failed at their endpoint. The native driver continues.
fn stops_early(case: &Case, native: &Outcome, full: &Outcome) -> bool {
    // No endpoint of the corpus sends either in its response: the request id, or the content of a direct response.
    let page = |last: &Message| last.values("retry-after").any(|value| value == b"60");
    let has = |last: &Message| last.values("x-request-id").next().is_some() || page(last);
    let own = full.client.last().is_some_and(has);
    let stopped = full.closed && full.rest.is_empty() && native.client.len() > full.client.len();
    stopped && may_stop(case, full) && own
}

/// Returns `true` if the Pingora driver may close the connection after its last response, see [`stops_early`].
fn may_stop(case: &Case, full: &Outcome) -> bool {
    let failed = |last: &Message| matches!(last.status(), 502 | 504) && last.values("x-request-id").next().is_some();
    has_body(case) || full.client.last().is_some_and(failed)
}

fn has_body(case: &Case) -> bool {
    announces(case, b"content-length") || announces(case, b"transfer-encoding")
}

fn announces(case: &Case, text: &[u8]) -> bool {
    case.bytes().to_ascii_lowercase().windows(text.len()).any(|window| window == text)
}

/// A message in which the accepted differences are replaced by equal values.
#[derive(Debug)]
struct Same {
    start: Vec<u8>,
    /// The values by name. Names are compared case-insensitively (RFC 9110 section 5.1), and the order of lines with
    /// different names is irrelevant (section 5.3).
    lines: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    framing: Framing,
    /// Removes the boundaries of chunks, which have no meaning (RFC 9112 section 7.1).
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

    /// Replaces the values of a name that are specific to this side.
    fn forget(&mut self, name: &str, own: impl Fn(&[u8]) -> bool) {
        for value in self.lines.get_mut(name.as_bytes()).into_iter().flatten() {
            if own(value.strip_prefix(b": ").unwrap_or(value)) {
                *value = b": (own)".to_vec();
            }
        }
    }
}

/// A generated id.
fn is_made(id: &[u8]) -> bool {
    id.len() == 32 && id.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The requests that the endpoint received completely. A truncated one was aborted by its client, or because of the
/// client's bytes; how much of it arrived is a race.
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
    // Pingora sends the default of HTTP/1.1 explicitly (RFC 9112 section 9.3).
    if same.lines.get(b"connection".as_slice()).is_some_and(|values| *values == [b": keep-alive"]) {
        same.lines.remove(b"connection".as_slice());
    }
    // A date that the edge adds may differ by a second; those of endpoints are of 1994.
    same.forget("date", |date| date.ends_with(b" GMT") && !date.windows(4).any(|year| year == b"1994"));
    // Answers of the edge contain the request id in their text.
    if let Some(id) = response.values("x-request-id").next().filter(|id| is_made(id)) {
        let text = String::from_utf8_lossy(&same.body).replace(std::str::from_utf8(id).unwrap(), "(own)");
        same.body = text.into_bytes();
    }
    same.forget("x-request-id", is_made);
    // The flush points of compressed bodies depend on the received pieces, so the uncompressed bodies are compared.
    if response.values("content-encoding").any(|coding| coding == b"gzip") && same.body.starts_with(&[0x1f, 0x8b]) {
        let mut content = Vec::new();
        same.whole &= MultiGzDecoder::new(&same.body[..]).read_to_end(&mut content).is_ok();
        same.body = content;
    }
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
    // How much of a truncated body arrives is a race. A body with invalid framing contains the next response.
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

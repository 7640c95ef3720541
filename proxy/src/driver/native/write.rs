//! The heads that the native driver sends: the received head without hop-by-hop headers, and with the edits of the
//! steps. Unchanged lines keep their order and their case.

use std::io::Write as _;

use http::header::DATE;

use super::request::RequestHead;
use super::response::Response;
use crate::http::body::Framing;
use crate::http::edits::Edits;
use crate::http::names::same_name;
use crate::http::response::ResponseBody;
use crate::http::spans::Field;
use crate::request::respond::Rendered;

/// Writes the head of a request to an endpoint. `coded` adds `Transfer-Encoding: chunked`, which the head lacks.
pub(super) fn request<H: RequestHead>(head: &H, edits: &Edits, coded: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(head.method().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(edits.target().unwrap_or(head.target().as_bytes()));
    out.extend_from_slice(b" HTTP/1.1\r\n");
    head.pass_on(|name| !is_of_connection(name) && !edits.removes(name), out);
    if coded {
        line(b"Transfer-Encoding", b"chunked", out);
    }
    added(edits, out);
    out.extend_from_slice(b"\r\n");
}

/// Returns `true` if a request header belongs to the client's connection and is not forwarded. `Transfer-Encoding` is
/// forwarded, because the body is too, in its chunks. Trailers are not forwarded, so no header announces support for
/// them.
fn is_of_connection(name: &[u8]) -> bool {
    let is = |own: &str| same_name(name, own.as_bytes());
    match name.len() {
        2 => is("te"),
        7 => is("upgrade") || is("trailer"),
        10 => is("connection") || is("keep-alive"),
        14 => is("http2-settings"),
        16 => is("proxy-connection"),
        18 => is("proxy-authenticate"),
        19 => is("proxy-authorization"),
        _ => false,
    }
}

/// The changes of a response head besides the edits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseHeadOptions<'a> {
    /// The framing of the body.
    pub(super) body: ResponseBody,
    /// Whether the connection ends with it.
    pub(super) closes: bool,
    /// The date for a response that has none (RFC 9110 section 6.6.1).
    pub(super) date: &'a str,
}

/// Writes the head of a response to the client.
pub(super) fn response(
    response: &Response,
    head: &[u8],
    edits: &Edits,
    options: &ResponseHeadOptions<'_>,
    out: &mut Vec<u8>,
) {
    status_line(response, head, out);
    let mut dated = false;
    let fields = sent_on(response, head, edits);
    pass_on(
        head,
        response.is_folded,
        fields.inspect(|field| dated |= same_name(field.name.of_bytes(head), b"date")),
        out,
    );
    if let Some(length) = options.body.content_length {
        number(b"Content-Length", length, out);
    }
    // A body that is delimited by the end of the endpoint's connection is sent in chunks, so that the client's
    // connection can stay open.
    if matches!(options.body.framing, Framing::Chunked | Framing::UntilClose) {
        line(b"Transfer-Encoding", b"chunked", out);
    }
    if !dated && !edits.leaves(&DATE) {
        line(b"Date", options.date.as_bytes(), out);
    }
    if options.closes {
        line(b"Connection", b"close", out);
    }
    added(edits, out);
    out.extend_from_slice(b"\r\n");
}

/// The header lines of an endpoint's response that the client gets. The edge writes its own framing headers.
pub(super) fn sent_on<'a>(response: &'a Response, head: &'a [u8], edits: &'a Edits) -> impl Iterator<Item = &'a Field> {
    response.fields.iter().filter(move |field| {
        let name = field.name.of_bytes(head);
        !frames(name) && !edits.removes(name)
    })
}

/// Returns `true` for headers that frame the body of a message.
fn frames(name: &[u8]) -> bool {
    match name.len() {
        14 => same_name(name, b"content-length"),
        17 => same_name(name, b"transfer-encoding"),
        _ => false,
    }
}

/// Writes an interim response (RFC 9110 section 15.2), without the headers of the endpoint's connection.
pub(super) fn interim(response: &Response, head: &[u8], out: &mut Vec<u8>) {
    status_line(response, head, out);
    let own = ["connection", "keep-alive", "proxy-connection", "upgrade"];
    let fields = response.fields.iter().filter(|field| {
        let name = field.name.of_bytes(head);
        !frames(name) && !own.iter().any(|own| same_name(name, own.as_bytes()))
    });
    pass_on(head, response.is_folded, fields, out);
    out.extend_from_slice(b"\r\n");
}

/// Writes a local reply.
pub(super) fn reply(rendered: &Rendered, closes: bool, date: &str, out: &mut Vec<u8>) {
    let phrase = http::StatusCode::from_u16(rendered.status).ok().and_then(|status| status.canonical_reason());
    // Writing to memory cannot fail.
    write!(out, "HTTP/1.1 {} {}\r\n", rendered.status, phrase.unwrap_or_default()).ok();
    for (name, value) in &rendered.headers {
        line(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    if !rendered.headers.iter().any(|(name, _)| *name == DATE) {
        line(b"Date", date.as_bytes(), out);
    }
    if closes {
        line(b"Connection", b"close", out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&rendered.body);
}

/// The end of a chunked body.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes a piece of a body.
pub(super) fn content(content: &[u8], chunked: bool, out: &mut Vec<u8>) {
    if chunked {
        write!(out, "{:x}\r\n", content.len()).ok();
    }
    out.extend_from_slice(content);
    if chunked {
        out.extend_from_slice(b"\r\n");
    }
}

fn status_line(response: &Response, head: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    let status = response.status;
    // The parser ensures three digits.
    let digit = |tens: u16| b'0' + u8::try_from(status / tens % 10).unwrap_or_default();
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(response.reason(head));
    out.extend_from_slice(b"\r\n");
}

/// Writes header lines of a received head, of which some are folded if `is_folded`. Neighbours in the usual form are
/// copied together.
pub(super) fn pass_on<'a>(head: &[u8], is_folded: bool, fields: impl Iterator<Item = &'a Field>, out: &mut Vec<u8>) {
    let mut piece = 0..0;
    for field in fields {
        match field.usual(head).filter(|_| !is_folded) {
            Some(line) if line.start == piece.end => piece.end = line.end,
            line => {
                let last = std::mem::replace(&mut piece, line.clone().unwrap_or_default());
                out.extend_from_slice(head.get(last).unwrap_or_default());
                if line.is_none() {
                    received(field.name.of_bytes(head), field.value.of_bytes(head), out);
                }
            }
        }
    }
    out.extend_from_slice(head.get(piece).unwrap_or_default());
}

pub(super) fn line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// A received header line; a folded value is unfolded.
fn received(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    unfolded(value, out);
    out.extend_from_slice(b"\r\n");
}

/// Unfolds a value over several lines (RFC 9112 section 5.2).
pub(super) fn unfolded(value: &[u8], out: &mut Vec<u8>) {
    let mut parts = value.split(|byte| matches!(byte, b'\r' | b'\n' | 0)).map(<[u8]>::trim_ascii);
    out.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts.filter(|part| !part.is_empty()) {
        out.extend_from_slice(b" ");
        out.extend_from_slice(part);
    }
}

fn number(name: &[u8], value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    write!(out, ": {value}\r\n").ok();
}

fn added(edits: &Edits, out: &mut Vec<u8>) {
    for (name, value) in edits.lasting() {
        line(name.as_str().as_bytes(), value, out);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::super::request::Request;
    use super::super::response::Read;
    use super::*;

    #[track_caller]
    fn check_request(head: &str, edit: impl FnOnce(&mut Edits), want: &str) {
        let (mut request, mut edits, mut out) = (Request::default(), Edits::default(), Vec::new());
        assert!(request.read(head.as_bytes()));
        edit(&mut edits);
        super::request(&request.view(head.as_bytes()), &edits, false, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), want);
    }

    #[test]
    fn requests_keep_their_unchanged_headers() {
        let name = HeaderName::from_static("x-a");
        let value = HeaderValue::from_static("3");
        let head = "GET /p?q HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-A: 1\r\nX-B: 2\r\n\r\n";
        check_request(head, |_| (), "GET /p?q HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-B: 2\r\n\r\n");
        let set = |edits: &mut Edits| {
            edits.set(name.clone(), |out| out.extend_from_slice(b"2"));
            edits.add(name.clone(), &value);
            edits.set_target(|out| out.extend_from_slice(b"/new"));
        };
        check_request(head, set, "GET /new HTTP/1.1\r\nHost: h\r\nX-B: 2\r\nx-a: 2\r\nx-a: 3\r\n\r\n");
        let last = |edits: &mut Edits| {
            set(edits);
            edits.remove(name.clone());
        };
        check_request(head, last, "GET /new HTTP/1.1\r\nHost: h\r\nX-B: 2\r\n\r\n");
    }

    #[track_caller]
    fn check_response(head: &str, closes: bool, want: &str) {
        let (mut response, mut out) = (Response::default(), Vec::new());
        assert_eq!(response.read(head.as_bytes()), Read::Whole(head.len()));
        let body = response.framing(head.as_bytes(), false).unwrap();
        let options = ResponseHeadOptions { body, closes, date: "now" };
        super::response(&response, head.as_bytes(), &Edits::default(), &options, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), want);
    }

    #[test]
    fn responses_state_their_framing() {
        let length = "HTTP/1.0 200 Fine\r\nContent-Length: 05\r\nDate: then\r\n\r\n";
        let want = "HTTP/1.1 200 Fine\r\nDate: then\r\nContent-Length: 5\r\n\r\n";
        check_response(length, false, want);
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: Chunked\r\n\r\n";
        let want = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nDate: now\r\nConnection: close\r\n\r\n";
        check_response(both, true, want);
        let until_close = "HTTP/1.1 200 OK\r\nX: a\r\n  b\r\n\r\n";
        let want = "HTTP/1.1 200 OK\r\nX: a b\r\nTransfer-Encoding: chunked\r\nDate: now\r\n\r\n";
        check_response(until_close, false, want);
        let bodiless = "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nDate: then\r\n\r\n";
        let want = "HTTP/1.1 304 Not Modified\r\nDate: then\r\nContent-Length: 9\r\n\r\n";
        check_response(bodiless, false, want);
        let stray = "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\nDate: then\r\n\r\n";
        check_response(stray, false, "HTTP/1.1 204 No Content\r\nDate: then\r\n\r\n");
    }
}

//! The head of an endpoint's response, and what it says of the body and the connection.

use std::mem::MaybeUninit;

use super::body::Framing;
use super::fields::{Field, Span, keep, values};

/// Header lines of a response.
const LINES_MAX: usize = 256;

/// What came of reading a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// There is more to come.
    Partial,
    /// It is whole: so many bytes.
    Whole(usize),
    /// It is no head of HTTP.
    Malformed,
}

/// A response head, as spans of its bytes.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// The status code.
    pub(super) status: u16,
    reason: Span,
    http11: bool,
    /// The header lines, in order.
    pub(super) fields: Vec<Field>,
}

impl Response {
    /// Reads a head, as lenient with endpoints as the full driver is.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Read {
        let mut lines = [MaybeUninit::uninit(); LINES_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let mut rules = httparse::ParserConfig::default();
        rules.allow_spaces_after_header_name_in_responses(true);
        rules.allow_obsolete_multiline_headers_in_responses(true);
        match rules.parse_response_with_uninit_headers(&mut parsed, bytes, &mut lines) {
            Ok(httparse::Status::Complete(length)) => {
                let (Some(status @ 100..), Some(version)) = (parsed.code, parsed.version) else {
                    return Read::Malformed;
                };
                self.status = status;
                self.http11 = version == 1;
                self.reason = parsed.reason.map_or(Span::default(), |reason| Span::of(reason.as_bytes(), bytes));
                keep(parsed.headers, bytes, &mut self.fields);
                Read::Whole(length)
            }
            Ok(httparse::Status::Partial) => Read::Partial,
            Err(_) => Read::Malformed,
        }
    }

    /// The reason phrase.
    pub(super) fn reason<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.reason.of_bytes(bytes)
    }

    /// The values of a header, in order.
    pub(super) fn values<'a>(&'a self, bytes: &'a [u8], name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        values(&self.fields, bytes, name)
    }

    /// How the body is framed (RFC 9112 section 6.3); `None` when that is in doubt.
    pub(super) fn framing(&self, bytes: &[u8], asked_by_head: bool) -> Option<Framing> {
        let bodiless = asked_by_head || matches!(self.status, 204 | 304);
        let mut codings = self.values(bytes, "transfer-encoding").peekable();
        if codings.peek().is_some() {
            let last = codings.last()?.rsplit(|byte| *byte == b',').next()?.trim_ascii();
            let chunked = last.eq_ignore_ascii_case(b"chunked");
            return if bodiless { Some(Framing::None) } else { chunked.then_some(Framing::Chunked) };
        }
        let mut length = None;
        for value in self.values(bytes, "content-length").flat_map(|value| value.split(|byte| *byte == b',')) {
            let digits = std::str::from_utf8(value.trim_ascii()).ok()?;
            let digits = digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?;
            let own: u64 = digits.parse().ok()?;
            if *length.get_or_insert(own) != own {
                return None;
            }
        }
        Some(if bodiless { Framing::None } else { length.map_or(Framing::UntilClose, Framing::Length) })
    }

    /// Whether the endpoint will take another request over the connection, as far as the head tells.
    pub(super) fn keeps_alive(&self, bytes: &[u8]) -> bool {
        let says = |word: &[u8]| {
            let mut words = self.values(bytes, "connection").flat_map(|value| value.split(|byte| *byte == b','));
            words.any(|own| own.trim_ascii().eq_ignore_ascii_case(word))
        };
        if self.http11 {
            !says(b"close")
        } else {
            says(b"keep-alive") && self.values(bytes, "transfer-encoding").next().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, want: Option<(Framing, bool)>) {
        let bytes = format!("{head}\r\n\r\n").into_bytes();
        let mut response = Response::default();
        assert_eq!(response.read(&bytes), Read::Whole(bytes.len()), "{head:?}");
        let got = response.framing(&bytes, false).map(|framing| (framing, response.keeps_alive(&bytes)));
        assert_eq!(got, want, "{head:?}");
        // HEAD has no body, but lengths that contradict each other are in doubt nevertheless.
        let doubted = want.is_none() && head.contains("Content-Length");
        assert_eq!(response.framing(&bytes, true), (!doubted).then_some(Framing::None), "{head:?}");
    }

    #[test]
    fn framing_and_keep_alive_are_told_by_the_head() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5", Some((Framing::Length(5), true)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close", Some((Framing::Length(5), false)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nContent-Length: 5", Some((Framing::Length(5), true)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6", None);
        check("HTTP/1.1 200 OK\r\nContent-Length: +5", None);
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5", Some((Framing::Chunked, true)));
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", Some((Framing::Chunked, true)));
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip", None);
        check("HTTP/1.1 200 OK", Some((Framing::UntilClose, true)));
        check("HTTP/1.1 204 No Content\r\nContent-Length: 5", Some((Framing::None, true)));
        check("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked", Some((Framing::None, true)));
        check("HTTP/1.0 200 OK\r\nContent-Length: 5", Some((Framing::Length(5), false)));
        check("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive", Some((Framing::Length(5), true)));
        check(
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive",
            Some((Framing::Chunked, false)),
        );
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let mut response = Response::default();
        for bytes in ["HTTP/2 200\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n", "SSH-2.0\r\n", "HTTP/1.1 200 OK\r\n: x\r\n\r\n"] {
            assert_eq!(response.read(bytes.as_bytes()), Read::Malformed, "{bytes:?}");
        }
        assert_eq!(response.read(b"HTTP/1.1 200 OK\r\nA: b\r\n"), Read::Partial);
    }
}

//! The head of an endpoint's response, with the framing of its body and the reuse of the connection.

use std::mem::MaybeUninit;

use crate::http::body::Malformed;
use crate::http::response::{Announced, HEAD_BYTES_MAX, LINES_MAX, ResponseBody, frame};
use crate::http::spans::{Field, Span, keep, values};

/// The outcome of reading a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// It is incomplete.
    Partial,
    /// It is complete; its length in bytes.
    Whole(usize),
    /// It is not an HTTP head, or exceeds the limit.
    Malformed,
}

/// A response head, as spans of its bytes.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// The status code.
    pub(super) status: u16,
    reason: Span,
    http11: bool,
    /// Whether a header line may be folded (RFC 9112 section 5.2).
    pub(super) is_folded: bool,
    /// The header lines, in order.
    pub(super) fields: Vec<Field>,
    /// The number of calls of [`Response::read`], and of bytes that it scanned or were scanned before it.
    #[cfg(test)]
    pub(super) scanned: (usize, usize),
}

impl Response {
    /// Parses a head, as leniently as the Pingora driver, except for its size and for empty lines before it: several
    /// empty lines would be parsed again whenever another one arrives.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Read {
        #[cfg(test)]
        {
            self.scanned = (self.scanned.0 + 1, self.scanned.1 + bytes.len());
        }
        if has_empty_lines(bytes) {
            return Read::Malformed;
        }
        let mut lines = [MaybeUninit::uninit(); LINES_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let mut rules = httparse::ParserConfig::default();
        rules.allow_spaces_after_header_name_in_responses(true);
        rules.allow_obsolete_multiline_headers_in_responses(true);
        match rules.parse_response_with_uninit_headers(&mut parsed, bytes, &mut lines) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => {
                let (Some(status @ 100..), Some(version)) = (parsed.code, parsed.version) else {
                    return Read::Malformed;
                };
                self.status = status;
                self.http11 = version == 1;
                self.reason = parsed.reason.map_or(Span::default(), |reason| Span::of(reason.as_bytes(), bytes));
                keep(parsed.headers, bytes, &mut self.fields);
                // The first line, one for each field, and the empty one.
                let lines = memchr::memchr_iter(b'\n', &bytes[..length]).count();
                self.is_folded = lines > self.fields.len() + 2;
                Read::Whole(length)
            }
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Read::Partial,
            Ok(httparse::Status::Complete(_) | httparse::Status::Partial) | Err(_) => Read::Malformed,
        }
    }

    /// Whether the endpoint answers in HTTP/1.1.
    pub(super) const fn is_http11(&self) -> bool {
        self.http11
    }

    /// The reason phrase.
    pub(super) fn reason<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.reason.of_bytes(bytes)
    }

    /// The values of a header, in order.
    pub(super) fn values<'a>(&'a self, bytes: &'a [u8], name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        values(&self.fields, bytes, name)
    }

    /// The framing of the body.
    ///
    /// # Errors
    /// If it is ambiguous.
    pub(super) fn framing(&self, bytes: &[u8], to_head: bool) -> Result<ResponseBody, Malformed> {
        frame(Announced {
            status: self.status,
            is_http10: !self.http11,
            to_head,
            codings: self.values(bytes, "transfer-encoding"),
            lengths: self.values(bytes, "content-length"),
        })
    }

    /// Returns `true` if the endpoint keeps the connection open after the response, according to the head.
    pub(super) fn keeps_alive(&self, bytes: &[u8]) -> bool {
        let says = |word: &[u8]| {
            let mut words = self.values(bytes, "connection").flat_map(|value| value.split(|byte| *byte == b','));
            words.any(|own| own.trim_ascii().eq_ignore_ascii_case(word))
        };
        if self.http11 { !says(b"close") } else { says(b"keep-alive") }
    }
}

/// Returns `true` if bytes begin with more than the one empty line that a recipient may skip (RFC 9112 section 2.2).
fn has_empty_lines(bytes: &[u8]) -> bool {
    let rest = bytes.strip_prefix(b"\r\n").or_else(|| bytes.strip_prefix(b"\n"));
    rest.is_some_and(|rest| matches!(rest.first(), Some(b'\r' | b'\n')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::body::Framing;

    #[track_caller]
    fn check(head: &str, want: Option<(Framing, bool)>) {
        let bytes = format!("{head}\r\n\r\n").into_bytes();
        let mut response = Response::default();
        assert_eq!(response.read(&bytes), Read::Whole(bytes.len()), "{head:?}");
        let got = response.framing(&bytes, false).ok().map(|body| (body.framing, response.keeps_alive(&bytes)));
        assert_eq!(got, want, "{head:?}");
    }

    #[test]
    fn framing_and_keep_alive_follow_from_the_head() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5", Some((Framing::Length(5), true)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close", Some((Framing::Length(5), false)));
        check("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nContent-Length: 5", None);
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5", Some((Framing::Chunked, true)));
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\ntransfer-encoding: chunked", None);
        check("HTTP/1.1 200 OK", Some((Framing::UntilClose, true)));
        check("HTTP/1.0 200 OK\r\nContent-Length: 5", Some((Framing::Length(5), false)));
        check("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive", Some((Framing::Length(5), true)));
        check("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive", None);
    }

    #[test]
    fn a_head_has_a_limit_of_bytes_and_lines() {
        let mut response = Response::default();
        let mut sized = |lines: usize, bytes: usize, tail: &str| {
            let mut head = String::from("HTTP/1.1 200 OK\r\n");
            (1..lines).for_each(|_| head.push_str("A: b\r\n"));
            let rest = bytes.saturating_sub(head.len() + "X: \r\n".len() + tail.len());
            head.push_str(&format!("X: {}\r\n{tail}", "x".repeat(rest)));
            (response.read(head.as_bytes()), head.len())
        };
        assert_eq!(
            sized(LINES_MAX, 0, "\r\n"),
            (Read::Whole(17 + 6 * (LINES_MAX - 1) + 7), 17 + 6 * (LINES_MAX - 1) + 7)
        );
        assert_eq!(sized(LINES_MAX + 1, 0, "\r\n").0, Read::Malformed);
        assert_eq!(sized(1, HEAD_BYTES_MAX, "\r\n"), (Read::Whole(HEAD_BYTES_MAX), HEAD_BYTES_MAX));
        assert_eq!(sized(1, HEAD_BYTES_MAX + 1, "\r\n").0, Read::Malformed);
        assert_eq!(sized(1, HEAD_BYTES_MAX - 1, ""), (Read::Partial, HEAD_BYTES_MAX - 1));
        assert_eq!(sized(1, HEAD_BYTES_MAX, "").0, Read::Malformed);
    }

    #[test]
    fn one_empty_line_before_the_status_line_is_skipped_and_two_are_refused() {
        let mut response = Response::default();
        for (before, want) in [
            ("\r\n", Read::Whole(21)),
            ("\n", Read::Whole(20)),
            ("\r\n\r\n", Read::Malformed),
            ("\n\n", Read::Malformed),
            ("\r\n\n", Read::Malformed),
        ] {
            let head = format!("{before}HTTP/1.1 200 OK\r\n\r\n");
            assert_eq!(response.read(head.as_bytes()), want, "{before:?}");
        }
        assert_eq!(response.read(b"\r\n\r"), Read::Malformed);
        assert_eq!(response.read(b"\r\n"), Read::Partial);
    }

    #[test]
    fn other_bytes_than_a_head_are_refused() {
        let mut response = Response::default();
        for bytes in ["HTTP/2 200\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n", "SSH-2.0\r\n", "HTTP/1.1 200 OK\r\n: x\r\n\r\n"] {
            assert_eq!(response.read(bytes.as_bytes()), Read::Malformed, "{bytes:?}");
        }
        assert_eq!(response.read(b"HTTP/1.1 200 OK\r\nA: b\r\n"), Read::Partial);
    }
}

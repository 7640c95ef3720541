//! The strict parser of the native driver. It takes no request that two parsers could read in different ways: unusual
//! and invalid requests are left to the Pingora driver, which also answers them.

use std::mem::MaybeUninit;

use tidegate_config::model::Head;

use super::write;
use crate::http::body::Framing;
use crate::http::names::{HeaderNames, same_name};
use crate::http::request_framing::FramingHeaders;
use crate::http::spans::{Field, Span, keep, values};
use crate::request::validate::{HeadFacts, LINE_MARKS, Protocol};

/// A request's head as it is forwarded.
pub(super) trait RequestHead: Head + HeaderNames {
    /// The target as sent.
    fn target(&self) -> &str;

    /// Writes the header lines whose name is to be passed on.
    fn pass_on(&self, passes: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>);
}

/// The maximum number of header lines of a request that is taken.
pub(super) const LINES_MAX: usize = 128;

/// A parsed request head, as spans of its bytes.
#[derive(Debug, Default)]
pub(super) struct Request {
    method: Span,
    target: Span,
    /// The header lines, in order.
    pub(super) fields: Vec<Field>,
    /// The framing of its body.
    pub(super) framing: Framing,
    /// Whether the client closes the connection after this request.
    pub(super) closes: bool,
    /// Whether the client waits for "100 Continue" (RFC 9110 section 10.1.1).
    pub(super) expects: bool,
}

/// Returns `true` for a byte that may be in a target: one that the other parser allows in both path and query. A target
/// has no fragment (RFC 9112 section 3.2), so no `#`.
pub(super) const fn is_of_target(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'}')
}

/// Returns `true` for a byte of a token (RFC 9110 section 5.6.2).
const fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// Returns `true` for a byte that may be in a host.
pub(super) const fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}

/// Counts of header lines that may occur once, or never.
#[derive(Default)]
struct HeaderCounts {
    hosts: usize,
    connections: usize,
    framing: FramingHeaders,
    upgrades: usize,
    expectations: usize,
}

impl Request {
    /// Parses a head whose lines all end with CRLF. Returns `true` if the request is taken.
    pub(super) fn read(&mut self, head: &[u8]) -> bool {
        let mut lines = [MaybeUninit::uninit(); LINES_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        if parsed.parse_with_uninit_headers(head, &mut lines) != Ok(httparse::Status::Complete(head.len())) {
            return false;
        }
        let (Some(method), Some(target), Some(1)) = (parsed.method, parsed.path, parsed.version) else { return false };
        if !target.starts_with('/') || !target.bytes().all(is_of_target) {
            return false;
        }
        if matches!(method, "CONNECT" | "TRACE") {
            return false;
        }
        self.method = Span::of(method.as_bytes(), head);
        self.target = Span::of(target.as_bytes(), head);
        (self.closes, self.expects) = (false, false);
        let mut seen = HeaderCounts::default();
        if !parsed.headers.iter().all(|header| self.take(header, &mut seen)) {
            return false;
        }
        keep(parsed.headers, head, &mut self.fields);
        let Ok(framing) = seen.framing.framing() else { return false };
        self.framing = framing;
        let once = [seen.connections, seen.upgrades, seen.expectations];
        self.expects = seen.expectations > 0 && self.framing != Framing::None;
        seen.hosts == 1 && once.iter().all(|count| *count <= 1)
    }

    /// Records a header line. Returns `true` if a request with it may be taken.
    fn take(&mut self, header: &httparse::Header<'_>, seen: &mut HeaderCounts) -> bool {
        let is = |name: &str| same_name(header.name.as_bytes(), name.as_bytes());
        match header.name.len() {
            4 if is("host") => {
                seen.hosts += 1;
                header.value.iter().copied().all(is_of_host)
            }
            6 if is("expect") => {
                seen.expectations += 1;
                header.value.eq_ignore_ascii_case(b"100-continue")
            }
            7 if is("upgrade") => {
                seen.upgrades += 1;
                // Several, or an empty one, are not taken.
                header.value.iter().all(|byte| is_of_token(*byte) || *byte == b'/')
            }
            10 if is("connection") => {
                seen.connections += 1;
                header.value.split(|byte| *byte == b',').all(|word| self.record_option(word.trim_ascii()))
            }
            14 if is("content-length") => {
                seen.framing.content_length(header.value);
                true
            }
            17 if is("transfer-encoding") => {
                seen.framing.transfer_encoding(header.value);
                // The Pingora driver would forward another spelling as `chunked`.
                header.value == b"chunked"
            }
            _ => true,
        }
    }

    /// Records an option of `Connection`. Returns `true` if a request with it may be taken. Options that name
    /// hop-by-hop headers have no effect, because these are never forwarded.
    fn record_option(&mut self, word: &[u8]) -> bool {
        let is = |option: &str| word.eq_ignore_ascii_case(option.as_bytes());
        self.closes |= is("close");
        is("close") || is("keep-alive") || is("upgrade") || is("te") || is("trailer") || is("http2-settings")
    }

    /// A view of the head for the steps.
    pub(super) fn view<'a>(&'a self, head: &'a [u8]) -> View<'a> {
        let target = self.target.of_text(head);
        let (path, query) = match memchr::memchr(b'?', target.as_bytes()) {
            Some(at) => (&target[..at], Some(&target[at + 1..])),
            None => (target, None),
        };
        let authority = values(&self.fields, head, "host").next();
        let authority = authority.map(|host| std::str::from_utf8(host).unwrap_or_default());
        View { head, fields: &self.fields, method: self.method.of_text(head), target, path, query, authority }
    }

    /// The facts about the head besides its header lines.
    pub(super) fn line(&self) -> HeadFacts<'static> {
        let lengths = self.fields.iter().map(|field| field.name.len() + field.value.len() + LINE_MARKS);
        let (bytes, longest) = lengths.fold((0, 0), |(bytes, longest), length| (bytes + length, length.max(longest)));
        HeadFacts {
            protocol: Protocol::Http11,
            target_authority: None,
            header_lines: self.fields.len(),
            header_bytes: self.target.len() + bytes,
            longest_header: longest,
        }
    }
}

/// A parsed head as the steps read it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    head: &'a [u8],
    fields: &'a [Field],
    method: &'a str,
    target: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    authority: Option<&'a str>,
}

#[cfg(any(test, feature = "fuzzing"))]
impl View<'_> {
    /// The header lines, name and value.
    pub(super) fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.of_bytes(self.head), field.value.of_bytes(self.head)))
    }
}

impl RequestHead for View<'_> {
    fn target(&self) -> &str {
        self.target
    }

    fn pass_on(&self, passes: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) {
        write::pass_on(
            self.head,
            false,
            self.fields.iter().filter(|field| passes(field.name.of_bytes(self.head))),
            out,
        );
    }
}

impl HeaderNames for View<'_> {
    fn each_name(&self, see: &mut dyn FnMut(&[u8])) {
        self.fields.iter().for_each(|field| see(field.name.of_bytes(self.head)));
    }
}

impl Head for View<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn path(&self) -> &str {
        self.path
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn authority(&self) -> Option<&str> {
        self.authority
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        values(self.fields, self.head, name).next()
    }

    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        values(self.fields, self.head, name).for_each(see);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, want: Option<(Framing, bool)>) {
        let mut request = Request::default();
        let got = request.read(head.as_bytes()).then_some((request.framing, request.closes));
        assert_eq!(got, want, "{head:?}");
    }

    fn with(line: &str) -> String {
        format!("GET /a?b HTTP/1.1\r\nHost: a.test\r\n{line}\r\n")
    }

    #[test]
    fn plain_requests_are_accepted() {
        check(&with(""), Some((Framing::None, false)));
        check(&with("Connection: Keep-Alive\r\n"), Some((Framing::None, false)));
        check(&with("connection: close\r\n"), Some((Framing::None, true)));
        check(&with("Content-Length: 12\r\n"), Some((Framing::Length(12), false)));
        check(&with("Transfer-Encoding: chunked\r\n"), Some((Framing::Chunked, false)));
        check(&with(&"X: y\r\n".repeat(LINES_MAX - 1)), Some((Framing::None, false)));
    }

    #[test]
    fn headers_of_the_connection_are_not_ambiguous() {
        for (lines, closes) in [
            ("Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n", false),
            ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n", false),
            ("Connection: TE, close\r\nTE: trailers\r\n", true),
            ("Trailer: x\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n", false),
            ("Proxy-Authorization: x\r\nProxy-Authenticate: x\r\n", false),
            ("Expect: 100-Continue\r\n", false),
        ] {
            check(&with(lines), Some((Framing::None, closes)));
        }
        for (line, expects) in [("", false), ("Content-Length: 3\r\n", true), ("Transfer-Encoding: chunked\r\n", true)]
        {
            let mut request = Request::default();
            assert!(request.read(with(&format!("Expect: 100-continue\r\n{line}")).as_bytes()));
            assert_eq!(request.expects, expects, "{line:?}");
        }
    }

    #[test]
    fn unusual_and_malformed_requests_go_to_the_pingora_driver() {
        for line in [
            "Host: a.test\r\n",
            "Connection: close, x\r\n",
            "Connection: content-length\r\n",
            "Connection: \r\n",
            "Connection: close\r\nConnection: close\r\n",
            "Upgrade: websocket, h2c\r\n",
            "Upgrade: websocket\r\nUpgrade: websocket\r\n",
            "Expect: 200-ok\r\n",
            "Expect: 100-continue\r\nExpect: 100-continue\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1234567890123456789\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: Chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "X : y\r\n",
            " folded\r\n",
            "X: a\0b\r\n",
            "X: a\rb\r\n",
            &"X: y\r\n".repeat(LINES_MAX),
        ] {
            check(&with(line), None);
        }
        for head in [
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
            "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\u{fc} HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /<a> HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nrest",
        ] {
            check(head, None);
        }
    }

    #[test]
    fn a_view_shows_the_sent_head() {
        let head = with("X-One: 1\r\nx-one: 2\r\n");
        let mut request = Request::default();
        assert!(request.read(head.as_bytes()));
        let view = request.view(head.as_bytes());
        assert_eq!((view.method(), view.path(), view.query()), ("GET", "/a", Some("b")));
        assert_eq!((view.target(), view.authority()), ("/a?b", Some("a.test")));
        let mut all = Vec::new();
        view.each_value("x-one", &mut |value| all.extend_from_slice(value));
        assert_eq!((view.header("x-one"), all.as_slice()), (Some(b"1".as_slice()), b"12".as_slice()));
    }
}

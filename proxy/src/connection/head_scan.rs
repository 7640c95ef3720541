//! Scans the first bytes of a client as little as necessary: HTTP/1 or HTTP/2, the end of a request head, and the
//! delimiters of its parts. It parses nothing else; the drivers do, and they decide what is well-formed.

use crate::http::body::Framing;
use crate::http::request_framing::{FramingFault, FramingHeaders};

/// The first bytes of HTTP/2 by prior knowledge (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of the first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstBytes {
    /// Both are possible.
    Undecided,
    /// They are not an HTTP/2 preface.
    Http1,
    /// They begin with the complete HTTP/2 preface.
    Http2,
}

/// Decides at the first byte that differs from the preface, so that a short HTTP/1.0 request never waits for more.
pub(crate) fn opening(bytes: &[u8]) -> FirstBytes {
    if bytes.starts_with(PREFACE) {
        FirstBytes::Http2
    } else if PREFACE.starts_with(bytes) {
        FirstBytes::Undecided
    } else {
        FirstBytes::Http1
    }
}

/// The bytes after a head that belong to its request. Bytes missed here would be parsed as another request, and bytes
/// too many would be missing from the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// A number of bytes, often none.
    Bytes(usize),
    /// A body in a transfer coding, which delimits itself, or is refused.
    Chunks,
    /// Unknown: a body of an invalid length, which the driver refuses.
    Unknown,
}

/// A complete head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WholeHead {
    /// Its length in bytes, with the empty line.
    pub(crate) len: usize,
    /// The number of its header lines.
    pub(crate) lines: usize,
    /// The bytes of its request after it.
    pub(crate) follows: Follows,
    /// Whether it has both a length and a transfer coding. Pingora removes the length before it can be checked.
    pub(crate) ambiguous: bool,
    /// Whether a line of it ends with LF alone. Parsers disagree about such a line (RFC 9112 section 2.2).
    pub(crate) bare: bool,
    /// Whether nothing precedes the request line, and every line ends with CRLF.
    pub(crate) strict: bool,
}

/// Searches the end of a head in bytes that arrive in pieces, reading each byte once.
#[derive(Debug, Default)]
pub(crate) struct HeadScan {
    /// The start of the incomplete line.
    line_start: usize,
    /// Where to continue the search for its end.
    next: usize,
    /// The number of complete lines, including the request line.
    lines: usize,
    /// Whether there was an empty line before the head.
    late: bool,
    /// Whether a line of the head ended without CR.
    bare: bool,
    announced: FramingHeaders,
}

impl HeadScan {
    /// Continues where the last call stopped; `bytes` is everything since the connection's last request.
    ///
    /// A line ends with LF, the head with an empty line; empty lines before the request line are skipped, whatever they
    /// end with (RFC 9112 section 2.2). `httparse` finds the same end, or a later one.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Option<WholeHead> {
        while let Some(at) = memchr::memchr(b'\n', &bytes[self.next..]) {
            let end = self.next + at;
            let line = &bytes[self.line_start..end];
            self.next = end + 1;
            self.line_start = end + 1;
            let empty = line.is_empty() || line == b"\r";
            if empty && self.lines == 0 {
                self.late = true;
                continue;
            }
            self.bare |= !line.ends_with(b"\r");
            if empty {
                let (lines, ambiguous) = (self.lines - 1, self.announced.has_both());
                let (len, bare, strict) = (end + 1, self.bare, !self.bare && !self.late);
                let follows = follows(self.announced);
                return Some(WholeHead { len, lines, follows, ambiguous, bare, strict });
            }
            if self.lines > 0 {
                scan(line, &mut self.announced);
            }
            self.lines += 1;
        }
        self.next = bytes.len();
        None
    }

    /// The framing of the body by the lines so far.
    ///
    /// # Errors
    /// If two parsers could end the body at different bytes.
    pub(crate) const fn framing(&self) -> Result<Framing, FramingFault> {
        self.announced.framing()
    }

    /// The number of header lines that are complete so far.
    pub(crate) const fn lines(&self) -> usize {
        self.lines.saturating_sub(1)
    }
}

/// Returns `true` if the request line of a head is `method SP target SP version` (RFC 9112 section 3), without a
/// further space or a control character, and without a fragment in the target. Pingora would percent-encode such a byte
/// of the target, or remove the fragment, and forward the request; another parser may end the target there. The native
/// driver takes no other request lines.
pub(crate) fn has_request_line(mut head: &[u8]) -> bool {
    while let Some(rest) = head.strip_prefix(b"\r\n").or_else(|| head.strip_prefix(b"\n")) {
        head = rest;
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (Some(first), Some(last)) = (memchr::memchr(b' ', line), memchr::memrchr(b' ', line)) else { return false };
    let Some(target) = line.get(first + 1..last) else { return false };
    // Every byte of a word is read, also after a bad one, so that the compiler can vectorise the loop.
    let is_odd = |byte: u8| (byte <= b' ') | (byte == 0x7f);
    let is_word = |word: &[u8]| !word.is_empty() && !word.iter().fold(false, |any, byte| any | is_odd(*byte));
    let is_target = !target.is_empty() && !target.iter().fold(false, |any, byte| any | is_odd(*byte) | (*byte == b'#'));
    is_word(&line[..first]) && is_target && is_word(&line[last + 1..])
}

/// Records a header line about the framing of the body.
fn scan(line: &[u8], announced: &mut FramingHeaders) {
    if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
        return;
    }
    let after = |name: &[u8]| {
        let (start, rest) = line.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then_some(rest)
    };
    // A space before the colon is refused later, but the name before it counts.
    let value = |name: &[u8]| after(name).filter(|rest| matches!(rest, [b':' | b' ' | b'\t', ..]));
    if let Some(value) = value(b"content-length") {
        announced.content_length(value.strip_prefix(b":").unwrap_or(value).trim_ascii());
    }
    if let Some(value) = value(b"transfer-encoding") {
        announced.transfer_encoding(value.strip_prefix(b":").unwrap_or(value));
    }
}

/// The bytes after a head with this framing. An upgrade changes nothing: until the endpoint agrees to it, it is a
/// request like every other (RFC 9110 section 7.8).
fn follows(announced: FramingHeaders) -> Follows {
    match announced.framing() {
        // A coding that is refused has no bytes of another request after it either.
        _ if announced.is_coded() => Follows::Chunks,
        Ok(Framing::Length(length)) => usize::try_from(length).map_or(Follows::Unknown, Follows::Bytes),
        Ok(Framing::None | Framing::Chunked | Framing::UntilClose) => Follows::Bytes(0),
        Err(_) => Follows::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_opening(bytes: &[u8], expected: FirstBytes) {
        assert_eq!(opening(bytes), expected);
    }

    #[test]
    fn the_opening_is_decided_at_the_first_differing_byte() {
        check_opening(b"", FirstBytes::Undecided);
        check_opening(b"P", FirstBytes::Undecided);
        check_opening(b"PO", FirstBytes::Http1);
        check_opening(b"G", FirstBytes::Http1);
        check_opening(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", FirstBytes::Undecided);
        check_opening(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FirstBytes::Http2);
        check_opening(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0", FirstBytes::Http2);
        check_opening(b"PRI * HTTP/1.0\r\n", FirstBytes::Http1);
    }

    /// The result must be the same wherever the bytes are cut.
    #[track_caller]
    fn check_head(bytes: &[u8], expected: Option<WholeHead>) {
        for step in 1..=bytes.len() {
            let mut scan = HeadScan::default();
            let mut found = None;
            let mut arrived = 0;
            while found.is_none() && arrived < bytes.len() {
                arrived = (arrived + step).min(bytes.len());
                found = scan.advance(&bytes[..arrived]);
            }
            assert_eq!(found, expected, "in steps of {step}");
        }
    }

    fn whole(len: usize, lines: usize, follows: Follows) -> Option<WholeHead> {
        Some(WholeHead { len, lines, follows, ambiguous: false, bare: false, strict: true })
    }

    /// Checks whether a request line is refused.
    #[track_caller]
    fn check_line(line: &str, malformed: bool) {
        for before in ["", "\r\n", "\n", "\r\n\n"] {
            let head = format!("{before}{line}\r\nHost: a\r\n\r\n");
            assert_eq!(has_request_line(head.as_bytes()), !malformed, "{head:?}");
        }
    }

    #[test]
    fn a_request_line_is_three_words() {
        for line in ["GET / HTTP/1.1", "GET /a?b=c;d HTTP/1.0", "PRI * HTTP/2.0", "G#T http://a/\u{fc} x"] {
            check_line(line, false);
        }
        for line in [
            "GET /s#x HTTP/1.1",
            "GET /s?a=b#x HTTP/1.1",
            "GET /# HTTP/1.1",
            "GET # HTTP/1.1",
            "GET http://a/s#x HTTP/1.1",
            "GET http://a#x HTTP/1.1",
            "OPTIONS *# HTTP/1.1",
            "CONNECT a:80# HTTP/1.1",
            "GET",
            "GET /",
            "GET / ",
            "GET  HTTP/1.1",
            " / HTTP/1.1",
            "GET / HTTP/1.1 ",
            " GET / HTTP/1.1",
            "GET  / HTTP/1.1",
            "GET /  HTTP/1.1",
            "GET /s x HTTP/1.1",
            "GET /?s x HTTP/1.1",
            "GET /s\tx HTTP/1.1",
            "GET /s\u{1}x HTTP/1.1",
            "GET /s\0x HTTP/1.1",
            "GET /s\rx HTTP/1.1",
            "GET /s\u{1f} HTTP/1.1",
            "GET /s\u{7f}x HTTP/1.1",
            "GET\t/\tHTTP/1.1",
            "G\u{1}T / HTTP/1.1",
            "GET / HTTP/1.1\0",
            "GET / HTTP/1.1\r",
        ] {
            check_line(line, true);
        }
    }

    /// A head that only the Pingora driver accepts, or, with a `bare` line, neither.
    fn lax(len: usize, lines: usize, bare: bool) -> Option<WholeHead> {
        whole(len, lines, Follows::Bytes(0)).map(|head| WholeHead { bare, strict: false, ..head })
    }

    #[test]
    fn a_head_ends_at_its_empty_line() {
        check_head(b"GET / HTTP/1.0\r\n\r\n", whole(18, 0, Follows::Bytes(0)));
        check_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b", whole(27, 1, Follows::Bytes(0)));
        check_head(b"GET / HTTP/1.1\nHost: a\n\n", lax(24, 1, true));
        check_head(b"GET / HTTP/1.1\r\nHost: a\n\r\n", lax(26, 1, true));
        check_head(b"GET / HTTP/1.1\r\nHost: a\r\n\nGET /b", lax(26, 1, true));
        check_head(b"\r\n\r\nGET / HTTP/1.0\r\n\r\n", lax(22, 0, false));
        check_head(b"\r\n\nGET / HTTP/1.0\r\n\r\n", lax(21, 0, false));
        check_head(b"\nGET / HTTP/1.0\n\r\n", lax(18, 0, true));
        check_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r", None);
        check_head(b"\r\n\r\n\r\n", None);
    }

    #[test]
    fn a_body_is_noticed_in_any_spelling() {
        check_head(b"POST / HTTP/1.1\r\ncontent-LENGTH: 1\r\n\r\nx", whole(38, 1, Follows::Bytes(1)));
        let coded = |len, lines| whole(len, lines, Follows::Chunks);
        check_head(b"POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n", coded(48, 1));
        check_head(b"POST / HTTP/1.1\r\nContent-Lengthy: 1\r\nTransfer-Encoding: a\r\n\r\n", coded(61, 2));
        for head in [
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\ntransfer-encoding: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding:a \r\nCONTENT-LENGTH :1\r\n\r\n",
        ] {
            check_head(head, coded(head.len(), 2).map(|head| WholeHead { ambiguous: true, ..head }));
        }
        check_head(b"GET /content-length HTTP/1.1\r\nX: content-length\r\n\r\n", whole(51, 1, Follows::Bytes(0)));
        for line in ["Upgrade: websocket", "Content-Lengths: 1", "Transfer-Encodings: a", "Content-Length"] {
            let head = format!("GET / HTTP/1.1\r\n{line}\r\n\r\n");
            check_head(head.as_bytes(), whole(head.len(), 1, Follows::Bytes(0)));
        }
    }

    #[track_caller]
    fn check_follows(lines: &str, want: Follows) {
        let head = format!("POST / HTTP/1.1\r\n{lines}\r\n");
        assert_eq!(HeadScan::default().advance(head.as_bytes()).unwrap().follows, want, "{lines:?}");
    }

    #[test]
    fn a_length_counts_where_it_is_beyond_doubt() {
        check_follows("Content-Length:\t12 \t\r\n", Follows::Bytes(12));
        check_follows("Upgrade: websocket\r\nContent-Length: 1\r\n", Follows::Bytes(1));
        check_follows("Transfer-Encoding: chunked\r\nUpgrade: websocket\r\n", Follows::Chunks);
        check_follows("Content-Length: 999999999999999999\r\n", Follows::Bytes(999_999_999_999_999_999));
        for unclear in [
            "Content-Length: 1000000000000000000\r\n",
            "Content-Length:\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 007\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 1 2\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length : 1\r\n",
            "Content-Length: 1\r\nX: 1\r\nContent-Length: 1\r\n",
            "Content-Length: x\r\nContent-Length: 1\r\n",
        ] {
            check_follows(unclear, Follows::Unknown);
        }
    }
}

//! Tracks the heads of HTTP/1.1 responses as they arrive, so that Pingora, which parses a head again with each piece of
//! it and accepts up to 1 MiB, gets only heads within the limit, and in few pieces. It searches line ends, the status
//! code and the name of a transfer coding, and parses nothing else: Pingora does.

use std::fmt;

use crate::http::response::HEAD_BYTES_MAX;

/// The length of a status line up to the status code.
const START_BYTES: usize = b"HTTP/1.1 200".len();

/// The name of a transfer coding. Its value is checked with the rest of the head.
const CODING: &[u8] = b"transfer-encoding";

/// The kind of head that ended in a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeadEnd {
    /// No head.
    Nothing,
    /// Heads of informational responses; another head follows.
    Interim,
    /// The head of the final response. A body may follow, or another protocol.
    Final(BytesAfterHead),
}

/// The bytes behind the head of a final response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BytesAfterHead {
    /// Their number in the piece in which the head ended.
    pub(super) bytes: usize,
    /// Whether they are a body in chunks, unless the request was HEAD.
    pub(super) is_chunked: bool,
}

/// The reason why an endpoint's bytes are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeadError {
    /// A head exceeds the limit.
    TooLarge,
    /// More than one empty line precedes it (RFC 9112 section 2.2 allows one).
    EmptyLines,
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "a response head of more than {HEAD_BYTES_MAX} bytes"),
            Self::EmptyLines => f.write_str("empty lines before a status line"),
        }
    }
}

impl std::error::Error for HeadError {}

/// An incomplete head.
#[derive(Debug, Default)]
pub(super) struct IncompleteHead {
    /// Its length in bytes, including an empty line before it.
    bytes: usize,
    /// The beginning of its status line.
    start: [u8; START_BYTES],
    started: usize,
    /// The length of the incomplete line.
    line: usize,
    /// The beginning of that line.
    begins: [u8; CODING.len() + 1],
    /// Whether a line has a transfer coding.
    has_coding: bool,
    /// Whether that line is a single CR so far.
    is_cr: bool,
    /// Whether an empty line preceded the status line.
    late: bool,
}

impl IncompleteHead {
    /// Returns `true` if no byte of the head has arrived.
    pub(super) const fn is_new(&self) -> bool {
        self.bytes == 0
    }

    /// Continues with new bytes; those after the final head are ignored.
    ///
    /// An empty line ends a head, with either line ending: `httparse` finds the same end.
    ///
    /// # Errors
    /// The reason why no more bytes may be read.
    pub(super) fn advance(&mut self, piece: &[u8]) -> Result<HeadEnd, HeadError> {
        let (mut rest, mut ended) = (piece, HeadEnd::Nothing);
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(at + 1);
            self.scan(&line[..at])?;
            self.bytes += 1;
            let is_empty = self.line == 0 || (self.line == 1 && self.is_cr);
            self.has_coding |= self.line >= self.begins.len() && is_coding(&self.begins);
            (self.line, self.is_cr) = (0, false);
            rest = after;
            if !is_empty {
                continue;
            }
            if self.started == 0 {
                if std::mem::replace(&mut self.late, true) {
                    return Err(HeadError::EmptyLines);
                }
                continue;
            }
            if !self.is_interim() {
                return Ok(HeadEnd::Final(BytesAfterHead { bytes: rest.len(), is_chunked: self.is_chunked() }));
            }
            *self = Self::default();
            ended = HeadEnd::Interim;
        }
        self.scan(rest)?;
        Ok(ended)
    }

    /// Takes a part of a line, without its end.
    fn scan(&mut self, part: &[u8]) -> Result<(), HeadError> {
        let is_new_line = self.started == 0 && self.line == 0;
        self.is_cr = (self.line == 0 && part == b"\r") || (self.is_cr && part.is_empty());
        let room = self.begins.get_mut(self.line..).unwrap_or_default();
        let count = room.len().min(part.len());
        room[..count].copy_from_slice(&part[..count]);
        self.line += part.len();
        self.bytes += part.len();
        // A single CR may be an empty line before the status line.
        let text = if is_new_line { part.strip_prefix(b"\r").unwrap_or(part) } else { part };
        let room = &mut self.start[self.started..];
        let count = room.len().min(text.len());
        room[..count].copy_from_slice(&text[..count]);
        self.started += count;
        if self.bytes > HEAD_BYTES_MAX { Err(HeadError::TooLarge) } else { Ok(()) }
    }

    /// Returns `true` if the response has chunks. 1xx, 204 and 304 have no body (RFC 9112 section 6.3).
    fn is_chunked(&self) -> bool {
        let code = self.start.get(9..).unwrap_or_default();
        self.has_coding && code != b"101" && code != b"204" && code != b"304"
    }

    /// Returns `true` if another head follows. After 101 another protocol follows (RFC 9110 section 15.2).
    fn is_interim(&self) -> bool {
        let code = self.start.get(9..).unwrap_or_default();
        self.start.starts_with(b"HTTP/1.") && code.starts_with(b"1") && code != b"101"
    }
}

/// Returns `true` for the beginning of a line with a transfer coding. Pingora takes white space before the colon.
fn is_coding(line: &[u8]) -> bool {
    let end = line.split_at_checked(CODING.len());
    end.is_some_and(|(name, end)| name.eq_ignore_ascii_case(CODING) && matches!(end, [b':' | b' ' | b'\t', ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINAL: HeadEnd = HeadEnd::Final(BytesAfterHead { bytes: 0, is_chunked: false });

    /// The result must be the same wherever the bytes are cut.
    #[track_caller]
    fn check(text: &str, want: Result<HeadEnd, HeadError>) {
        for step in 1..=text.len() {
            let (mut guard, mut got) = (IncompleteHead::default(), Ok(HeadEnd::Nothing));
            for piece in text.as_bytes().chunks(step) {
                match guard.advance(piece) {
                    Ok(HeadEnd::Nothing) => {}
                    Ok(HeadEnd::Interim) => got = Ok(HeadEnd::Interim),
                    Ok(HeadEnd::Final(_)) => {
                        got = Ok(FINAL);
                        break;
                    }
                    refused @ Err(_) => {
                        got = refused;
                        break;
                    }
                }
            }
            assert_eq!(got, want, "{text:?} in steps of {step}");
        }
    }

    #[test]
    fn a_head_ends_at_its_empty_line() {
        for whole in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\nA: b\n\nbody\n\nmore",
            "HTTP/1.1 200 OK\r\nA: b\n\r\n",
            "\r\nHTTP/1.1 204\r\n\r\n",
            "\nHTTP/1.0 200 OK\r\n\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 \n\nHTTP/1.1 404 Not Found\r\n\r\n",
            "anything\r\n\r\n",
        ] {
            check(whole, Ok(FINAL));
        }
        check("HTTP/1.1 100 Continue\r\n\r\n", Ok(HeadEnd::Interim));
        check("HTTP/1.1 199 \r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n", Ok(HeadEnd::Interim));
        for part in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r", "HTTP/1.1 200 OK\r\n \r\n\t\n", "\r\n"] {
            check(part, Ok(HeadEnd::Nothing));
        }
    }

    #[test]
    fn one_empty_line_before_a_status_line_is_allowed() {
        for text in ["\r\n\r\n", "\n\n", "\n\r\nHTTP/1.1 200 OK\r\n\r\n"] {
            check(text, Err(HeadError::EmptyLines));
        }
        // One before each of several heads.
        check("\r\nHTTP/1.1 100 \r\n\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Ok(FINAL));
    }

    #[test]
    fn the_limit_of_a_head_is_that_of_the_native_driver() {
        let sized = |bytes: usize| {
            let (begin, end) = ("HTTP/1.1 200 OK\r\nX: ", "\r\n\r\n");
            format!("{begin}{}{end}", "x".repeat(bytes - begin.len() - end.len()))
        };
        let whole = |text: &str| IncompleteHead::default().advance(text.as_bytes());
        assert_eq!(whole(&sized(HEAD_BYTES_MAX)), Ok(FINAL));
        // The end of the last line does not count towards the limit.
        assert_eq!(whole(&sized(HEAD_BYTES_MAX + 2)), Err(HeadError::TooLarge));
        assert_eq!(whole(&"x".repeat(HEAD_BYTES_MAX + 1)), Err(HeadError::TooLarge));
        // The limit applies to each informational head by itself.
        let interim = sized(HEAD_BYTES_MAX).replace("200 OK", "103 OK");
        assert_eq!(whole(&format!("{interim}{interim}{}", sized(HEAD_BYTES_MAX))), Ok(FINAL));
    }

    #[track_caller]
    fn check_chunked(head: &str, want: bool) {
        for step in 1..=head.len() {
            let mut guard = IncompleteHead::default();
            let ended = head.as_bytes().chunks(step).map(|piece| guard.advance(piece).unwrap()).last();
            assert_eq!(
                ended,
                Some(HeadEnd::Final(BytesAfterHead { bytes: 0, is_chunked: want })),
                "{head:?} in steps of {step}"
            );
        }
    }

    #[test]
    fn a_transfer_coding_is_seen_in_any_line() {
        check_chunked("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true);
        check_chunked("HTTP/1.1 200 OK\r\nA: b\r\ntransfer-encoding:chunked\r\nC: d\r\n\r\n", true);
        check_chunked("HTTP/1.1 200 OK\r\nTRANSFER-ENCODING : chunked\r\n\r\n", true);
        check_chunked("HTTP/1.1 103 \r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", false);
        check_chunked("HTTP/1.1 200 OK\r\nX-Transfer-Encoding: chunked\r\nTransfer-Encodings: a\r\n\r\n", false);
        check_chunked("HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\n\r\n", false);
        let whole = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello";
        let want = HeadEnd::Final(BytesAfterHead { bytes: 8, is_chunked: true });
        assert_eq!(IncompleteHead::default().advance(whole.as_bytes()), Ok(want));
    }
}

//! Counts the bytes of a request on their way to an HTTP/1.1 endpoint: where its own head says that it ends, it ends.
//! Pingora writes heads and bodies; this notices it if a byte would follow the end, which the endpoint would read as
//! another request.

use crate::connection::chunks::Chunks;
use crate::connection::head_scan::HeadScan;
use crate::http::body::Framing;

const HEAD_END: &[u8] = b"\r\n\r\n";

/// The part of a request that was written.
#[derive(Debug)]
pub(super) enum SentRequest {
    /// A part of the head.
    Head(Vec<u8>),
    /// The head, and a part of a body of which this number of bytes is left.
    Length(u64),
    /// The head, and a part of a body in chunks.
    Chunks(Chunks),
    /// A head that does not say where the body ends.
    Unclear,
}

impl SentRequest {
    /// Nothing.
    pub(super) const fn new() -> Self {
        Self::Head(Vec::new())
    }

    /// The number of the next bytes that belong to the request. If there are none, these bytes must not be written.
    pub(super) fn own(&self, bytes: &[u8]) -> usize {
        match self {
            Self::Head(begun) if begun.is_empty() => to_head_end(bytes),
            // The end may be cut.
            Self::Head(begun) => {
                let begun = &begun[begun.len().saturating_sub(HEAD_END.len() - 1)..];
                to_head_end(&[begun, bytes].concat()) - begun.len()
            }
            Self::Length(left) => usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len())),
            Self::Chunks(chunks) if chunks.is_over() => 0,
            Self::Chunks(chunks) => chunks.clone().own(bytes).unwrap_or_default(),
            Self::Unclear => 0,
        }
    }

    /// Records that these bytes, which belong to the request, were written.
    pub(super) fn wrote(&mut self, bytes: &[u8]) {
        match self {
            // Pingora writes it at once, and the socket usually takes it at once.
            Self::Head(begun) if begun.is_empty() && bytes.ends_with(HEAD_END) => *self = Self::behind(bytes),
            Self::Head(begun) => {
                begun.extend_from_slice(bytes);
                if begun.ends_with(HEAD_END) {
                    *self = Self::behind(begun);
                }
            }
            Self::Length(left) => *left = left.saturating_sub(bytes.len() as u64),
            Self::Chunks(chunks) => {
                if chunks.own(bytes).is_err() {
                    *self = Self::Unclear;
                }
            }
            Self::Unclear => {}
        }
    }

    /// Returns `true` if all of it was written.
    pub(super) const fn is_whole(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(chunks) => chunks.is_over(),
            Self::Head(_) | Self::Unclear => false,
        }
    }

    fn behind(head: &[u8]) -> Self {
        let mut scan = HeadScan::default();
        match scan.advance(head).and_then(|_| scan.framing().ok()) {
            Some(Framing::None) => Self::Length(0),
            Some(Framing::Length(length)) => Self::Length(length),
            Some(Framing::Chunked) => Self::Chunks(Chunks::behind(0)),
            Some(Framing::UntilClose) | None => Self::Unclear,
        }
    }
}

/// The number of bytes up to the end of a head.
fn to_head_end(bytes: &[u8]) -> usize {
    let mut lines = memchr::memchr_iter(b'\n', bytes).map(|at| at + 1);
    lines.find(|end| bytes[..*end].ends_with(HEAD_END)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes bytes that are offered in pieces of every size, and checks how many of them belong to the request, and
    /// whether they are all of it.
    #[track_caller]
    fn check(head: &str, body: &str, want: usize, is_whole: bool) {
        let text = format!("{head}{body}");
        for step in 1..=text.len() {
            for taken_max in [1, text.len()] {
                let (mut sent, mut own) = (SentRequest::new(), 0);
                for piece in text.as_bytes().chunks(step) {
                    let mut rest = piece;
                    while !rest.is_empty() {
                        let count = sent.own(rest).min(taken_max);
                        if count == 0 {
                            break;
                        }
                        sent.wrote(&rest[..count]);
                        own += count;
                        rest = &rest[count..];
                    }
                    if !rest.is_empty() {
                        break;
                    }
                }
                let got = (own, sent.is_whole());
                assert_eq!(got, (head.len() + want, is_whole), "{text:?} in steps of {step}, at most {taken_max}");
            }
        }
    }

    const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

    #[test]
    fn a_request_ends_where_its_head_says() {
        check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 0, true);
        check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "0\r\n\r\n", 0, true);
        let length = format!("{POST}Content-Length: 5\r\n\r\n");
        check(&length, "hello", 5, true);
        check(&length, "hello0\r\n\r\n", 5, true);
        check(&length, "hell", 4, false);
        let chunks = format!("{POST}transfer-encoding: chunked\r\n\r\n");
        check(&chunks, "5\r\nhello\r\n0\r\n\r\n", 15, true);
        check(&chunks, "5\r\nhello\r\n0\r\n\r\n0\r\n\r\n", 15, true);
        check(&chunks, "5\r\nhello\r\n0\r\n", 13, false);
        check(&chunks, "0\r\n\r\nGET / HTTP/1.1\r\n\r\n", 5, true);
    }

    #[test]
    fn nothing_follows_a_head_that_does_not_say_where_the_body_ends() {
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: gzip\r\n",
        ] {
            check(&format!("{POST}{lines}\r\n"), "hello", 0, false);
        }
    }
}

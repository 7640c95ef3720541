//! Tracks the chunks of an endpoint's response as they arrive, by the rules of both drivers: Pingora by itself takes a chunk
//! size without digits, line ends within a chunk extension, and trailers of 64 KiB, and another parser could read another
//! message.

use crate::http::body::{Body, Framing, Malformed, Piece};

/// A body in chunks that has not ended.
#[derive(Debug)]
pub(super) struct ChunkGuard {
    body: Body,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// Whether bytes followed the body.
    has_more: bool,
    is_malformed: bool,
}

impl ChunkGuard {
    /// The state before the first chunk.
    pub(super) const fn new() -> Self {
        Self { body: Body::new(Framing::Chunked), line: Vec::new(), has_more: false, is_malformed: false }
    }

    /// Returns `true` if the body has ended, and nothing followed it.
    pub(super) const fn is_whole(&self) -> bool {
        self.body.is_over() && !self.has_more
    }

    /// Returns `true` if bytes have violated the framing.
    pub(super) const fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Continues with new bytes. Returns how many of them obey the framing: all, or those before the first violation.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_malformed {
            match self.step(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Malformed) => self.is_malformed = true,
            }
        }
        bytes.len() - rest.len()
    }

    /// Takes the beginning of the new bytes, and returns its length.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        if !self.line.is_empty() {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
            self.line.extend_from_slice(bytes.get(..end).unwrap_or_default());
            // The line is framing: content is never kept.
            if let Piece::Framing(_, next) = self.body.next(&self.line)? {
                self.body = next;
                self.line.clear();
            }
            return Ok(end);
        }
        Ok(match self.body.next(bytes)? {
            Piece::Content(count) => {
                self.body.took(count);
                count
            }
            Piece::Framing(count, next) => {
                self.body = next;
                count
            }
            Piece::Unknown => {
                self.line.extend_from_slice(bytes);
                bytes.len()
            }
            Piece::End => {
                self.has_more = true;
                bytes.len()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result must be the same wherever the bytes are cut. `want` says whether the body has ended with them.
    #[track_caller]
    fn check(text: &str, want: Result<bool, Malformed>) {
        for step in 1..=text.len() {
            let mut guard = ChunkGuard::new();
            let taken: usize = text.as_bytes().chunks(step).map(|piece| guard.advance(piece)).sum();
            let got = if guard.is_malformed() { Err(Malformed) } else { Ok(guard.is_whole()) };
            assert_eq!(got, want, "{text:?} in steps of {step}");
            assert_eq!(taken == text.len(), want.is_ok(), "{text:?} in steps of {step}");
        }
    }

    #[test]
    fn the_bytes_before_a_violation_are_taken() {
        let mut guard = ChunkGuard::new();
        assert_eq!(guard.advance(b"5\r\nhelloX\r\n"), 8);
        assert_eq!(guard.advance(b"0\r\n\r\n"), 0);
    }

    #[test]
    fn chunks_are_read_by_the_grammar() {
        check("5\r\nhello\r\n0\r\n\r\n", Ok(true));
        check("005 \t;a=b\r\nhello\r\n6\r\n world\r\n0;x\r\nA: b\r\n\r\n", Ok(true));
        check("5\r\nhel\no\r\n0\r\n\r\n", Ok(true));
        for part in ["5", "5\r\nhello", "5\r\nhello\r", "0\r\n", "0\r\nA: b\r\n", "0\r\n\r"] {
            check(part, Ok(false));
        }
        check("0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Ok(false));
    }

    #[test]
    fn other_chunks_are_refused() {
        for text in [
            "\r\n",
            ";a\r\n",
            "x\r\n",
            "5\nhello\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5;a\rb\r\nhello\r\n0\r\n\r\n",
            "5\r\nhello!\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "0\r\nA: b\n\r\n",
            "1234567890123456789\r\n",
        ] {
            check(text, Err(Malformed));
        }
        check(&format!("0\r\nA: {}\r\n\r\n", "x".repeat(4 * 1024)), Err(Malformed));
        check(&format!("5;{}\r\nhello\r\n", "x".repeat(4 * 1024)), Err(Malformed));
    }
}
